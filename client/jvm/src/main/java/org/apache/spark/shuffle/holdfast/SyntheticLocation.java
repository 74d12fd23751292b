package org.apache.spark.shuffle.holdfast;

import java.util.OptionalInt;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.BlockManagerId$;
import scala.Option;

/**
 * The place that every MapStatus of a generation names: a BlockManagerId made from shuffle and generation.
 *
 * <p>No executor keeps the data, so a status names none. All statuses of a generation name one place, and no other
 * status names it: so a fetch failure that names it makes Spark drop exactly that generation's outputs, and later
 * events about it are ignored (docs/adr/0014-synthetic-locations.md). Host and executor carry the same name, since
 * with an external shuffle service Spark forgets outputs by host.
 *
 * <p>Used by writers (statuses), readers (which generation to ask for, fetch failures) and the driver.
 */
public final class SyntheticLocation {
    /** What names of such executors begin with. */
    public static final String PREFIX = "holdfast-";

    /** Spark wants a port above 0; nobody ever connects. */
    private static final int PORT = 1;

    private SyntheticLocation() {}

    /** The location of one generation of a shuffle. */
    public static BlockManagerId of(int shuffle, int generation) {
        String name = PREFIX + shuffle + "-" + generation;
        BlockManagerId fresh = BlockManagerId$.MODULE$.apply(name, name, PORT, Option.empty());
        return BlockManagerId$.MODULE$.getCachedBlockManagerId(fresh);
    }

    /** The generation that a location names, empty if it is not one of this shuffle. */
    public static OptionalInt generation(BlockManagerId location, int shuffle) {
        String name = location.executorId();
        String mine = PREFIX + shuffle + "-";
        if (!name.startsWith(mine)) {
            return OptionalInt.empty();
        }
        try {
            int generation = Integer.parseInt(name, mine.length(), name.length(), 10);
            return generation < 0 ? OptionalInt.empty() : OptionalInt.of(generation);
        } catch (NumberFormatException error) {
            return OptionalInt.empty();
        }
    }
}
