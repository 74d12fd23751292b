package org.apache.spark.shuffle.holdfast.push;

/**
 * What one writer may hold, and for how long.
 *
 * @param frameBytes a frame is sent when so much is in it; one that holds a single long batch is longer
 * @param openBytes memory of frames that are being filled, all destinations together: beyond it the fullest is sent
 * @param heldBytes memory of frames handed over and not acknowledged: beyond it {@code write} waits
 * @param noRoomMs how long it waits while no worker has room
 * @param memoryMs how long it waits while others hold all the direct memory of the JVM
 */
public record PushLimits(int frameBytes, long openBytes, long heldBytes, long noRoomMs, long memoryMs) {
    /** The smallest frame. */
    public static final int FRAME_BYTES_MIN = 256 << 10;
    static final int FRAME_BYTES_MAX = 4 << 20;

    /** What is used unless a setting says otherwise. */
    public static final PushLimits USUAL = new PushLimits(1 << 20, 32L << 20, 64L << 20, 120_000, 60_000);

    /** Refuses what cannot work. */
    public PushLimits {
        if (frameBytes < FRAME_BYTES_MIN || frameBytes > FRAME_BYTES_MAX) {
            throw new IllegalArgumentException("a push frame has 256 KiB to 4 MiB, not " + frameBytes + " bytes");
        }
        if (openBytes < frameBytes || heldBytes < frameBytes) {
            throw new IllegalArgumentException(
                    "open (" + openBytes + ") and held (" + heldBytes + ") bytes have to fit a frame of " + frameBytes);
        }
    }

    long noRoomNs() {
        return noRoomMs * 1_000_000;
    }

    long memoryNs() {
        return memoryMs * 1_000_000;
    }
}
