package org.apache.spark.shuffle.holdfast.fetch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.BatchHeader;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.SeededCrc;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/** Makes the batches of an attempt, for tests of the cores. */
final class Batches {
    static final ShuffleKey KEY = new ShuffleKey(Instance.random(), 3, 0);

    private Batches() {}

    /** One batch, as bytes. */
    record Made(int map, int number, ByteBuffer bytes) {
        /** Parses it into `header`. */
        BatchHeader into(BatchHeader header) {
            try {
                header.parse(bytes, 0, 0, new SeededCrc(KEY));
                return header;
            } catch (HoldfastException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** What one attempt wrote to partition 0: batch n has n bytes; the last one is LAST. */
    static List<Made> of(int map, int count, long attempt) {
        byte[][] payloads = new byte[count][];
        for (int number = 0; number < count; number++) {
            payloads[number] = new byte[number];
        }
        return of(map, attempt, payloads, new boolean[count]);
    }

    static List<Made> of(int map, long attempt, byte[][] payloads, boolean[] more) {
        SeededCrc crc = new SeededCrc(KEY);
        List<Made> made = new ArrayList<>();
        long sum = 0;
        for (int number = 0; number < payloads.length; number++) {
            boolean last = number == payloads.length - 1;
            int before = BatchHeader.SIZE + (last ? BatchHeader.TOTALS_BYTES : 0);
            ByteBuffer data = ByteBuffer.allocate(before + payloads[number].length).order(ByteOrder.LITTLE_ENDIAN);
            data.put(before, payloads[number]);
            if (last) {
                BatchHeader.putTotals(data, BatchHeader.SIZE, number + 1, sum);
            }
            int flags = (last ? BatchHeader.LAST : 0) | (more[number] ? BatchHeader.MORE : 0);
            int value = BatchHeader.write(
                    data, 0, flags, map, attempt, number, data.capacity() - BatchHeader.SIZE, 0, crc);
            sum += value & 0xFFFF_FFFFL;
            made.add(new Made(map, number, data));
        }
        return made;
    }
}
