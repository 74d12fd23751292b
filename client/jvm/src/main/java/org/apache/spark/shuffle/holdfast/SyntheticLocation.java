package org.apache.spark.shuffle.holdfast;

import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.BlockManagerId$;
import scala.Option;

/**
 * The place that every MapStatus of a generation names: a BlockManagerId made from shuffle, generation and the id of the masters'
 * state that opened it, since after a restore of the masters the same generation may be opened again.
 *
 * <p>No executor keeps the data, so a status names none. All statuses of a generation name one place, and no other
 * status names it: so a fetch failure that names it makes Spark drop exactly that generation's outputs, and later
 * events about it are ignored (docs/internals/adr/0014-synthetic-locations.md). Host and executor carry the same name, since
 * with an external shuffle service Spark forgets outputs by host.
 *
 * <p>Used by writers (statuses), readers (which generation to ask for, fetch failures) and the driver.
 */
public final class SyntheticLocation {
    /** What names of such executors begin with. */
    public static final String PREFIX = "holdfast-";

    /** Spark needs a port above 0; it is never connected to. */
    private static final int PORT = 1;

    /** A generation of a shuffle as its statuses name it. */
    record Named(int generation, long state) {}

    private SyntheticLocation() {}

    /** The location of one generation of a shuffle. */
    public static BlockManagerId of(int shuffle, int generation, long state) {
        String name = PREFIX + shuffle + "-" + generation + "-" + Long.toHexString(state);
        BlockManagerId fresh = BlockManagerId$.MODULE$.apply(name, name, PORT, Option.empty());
        return BlockManagerId$.MODULE$.getCachedBlockManagerId(fresh);
    }

    /** What a location names, null if it is no generation of this shuffle. */
    static Named named(BlockManagerId location, int shuffle) {
        String name = location.executorId();
        String mine = PREFIX + shuffle + "-";
        int state = name.indexOf('-', mine.length());
        if (!name.startsWith(mine) || state < 0) {
            return null;
        }
        try {
            int generation = Integer.parseInt(name, mine.length(), state, 10);
            return generation < 0 ? null : new Named(generation, Long.parseUnsignedLong(name, state + 1, name.length(), 16));
        } catch (NumberFormatException error) {
            return null;
        }
    }
}
