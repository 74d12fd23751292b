package org.apache.spark.shuffle.holdfast.push;

import java.io.IOException;
import java.util.List;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * A push writer whose batch cannot be made: whoever swallows that and goes on never gets sizes for a status. No worker is asked. Run by
 * tests/jvm/test_buffers.py.
 */
public final class LostBatchMain {
    private static final int ROUNDS = 6;

    private LostBatchMain() {}

    /** Fails the n-th batch, for each n; an error ends it. */
    public static void main(String[] arguments) throws Exception {
        for (int failing = 1; failing <= ROUNDS; failing++) {
            run(failing);
        }
        System.out.println("ok");
    }

    private static void run(int failing) throws Exception {
        Buffers buffers = new Buffers(1 << 20);
        ShuffleKey key = new ShuffleKey(Instance.random(), 1, 0);
        int[] calls = {0};
        Encryption fails = (data, offset, length) -> {
            if (++calls[0] == failing) {
                throw new IOException("no key");
            }
            return new Encryption.Sealed(data.clone(), length);
        };
        try (Masters masters = new Masters("127.0.0.1:1", 1_000);
                ConnectionPool pool = new ConnectionPool(
                        () -> Hello.client("", 0, masters.credentials().tokenBytes()), masters.credentials(), buffers);
                PushContext context = new PushContext(masters, pool, buffers, 1, 0, PushLimits.USUAL)) {
            PartitionLocations locations = new PushWorld(PushWorld.at(1), PushWorld.at(1)).locations;
            RegisteredShuffle registered = new RegisteredShuffle(key, 1, 0, new byte[0], List.of());
            PushWriter writer = new PushWriter(context, registered, locations, 0, 7, Compression.NONE, fails);
            byte[] records = new byte[100];
            int reported = 0;
            for (int each = 0; each < 2 * ROUNDS; each++) {
                try {
                    writer.write(each % 2, records, 0, records.length);
                    check(reported == 0, "a batch was taken after one was lost");
                } catch (HoldfastException swallowed) {
                    check(swallowed.getMessage().contains("no key"), swallowed.getMessage());
                    reported++;
                }
            }
            check(reported == 2 * ROUNDS - failing + 1, "told " + reported + " times");
            try {
                writer.close();
                check(false, "an attempt that lost a batch has sizes for a status");
            } catch (HoldfastException again) {
                check(again.status() == Status.INTERNAL && again.getMessage().contains("no key"), again.getMessage());
            }
            writer.abort();
            check(buffers.taken() == 0, "buffers are out: " + buffers.taken());
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
