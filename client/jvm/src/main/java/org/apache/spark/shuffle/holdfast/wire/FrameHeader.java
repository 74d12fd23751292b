package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/**
 * The header of a frame, 32 bytes (docs/internals/protocol.md, "Frame"). {@link #decode} checks magic, version, type and lengths, so that
 * has one may allocate what it claims; {@link #checkMeta} checks the CRC once the meta section is there. Buffers are little endian.
 */
public record FrameHeader(int type, int flags, long requestId, int metaBytes, int bodyBytes, int status, int crc) {
    public static final int SIZE = 32;
    /** Bytes "HFF1". */
    public static final int MAGIC = 'H' | 'F' << 8 | 'F' << 16 | '1' << 24;
    public static final int VERSION = 1;
    public static final int RESPONSE = 0x0001;
    private static final int CRC_AT = 28;

    public boolean isResponse() {
        return (flags & RESPONSE) != 0;
    }

    /** Encode a request; see the other one. */
    public static void encode(ByteBuffer to, int type, long requestId, ByteBuffer meta, int bodyBytes) throws HoldfastException {
        encode(to, type, 0, requestId, meta, bodyBytes, Status.OK);
    }

    /**
     * Put the header at the position of {@code to}. {@code meta}, between position and limit, and a body of exactly {@code bodyBytes}
     * are to be sent right behind. Neither buffer needs to be ours alone: meta is only read, and stays as it is.
     */
    public static void encode(ByteBuffer to, int type, int flags, long requestId, ByteBuffer meta, int bodyBytes, int status)
            throws HoldfastException {
        int metaBytes = meta.remaining();
        checkBounds(metaBytes, bodyBytes);
        int at = to.position();
        to.order(ByteOrder.LITTLE_ENDIAN);
        to.putInt(MAGIC).put((byte) VERSION).put((byte) type).putShort((short) flags).putLong(requestId);
        to.putInt(metaBytes).putInt(bodyBytes).putInt(status);
        to.putInt(crcOf(to, at, meta));
    }

    /** Check and take the header at {@code offset}; at least {@link #SIZE} bytes are there. Throws BAD_FRAME, BAD_VERSION or TOO_LARGE. */
    public static FrameHeader decode(ByteBuffer from, int offset) throws HoldfastException {
        if (from.order() != ByteOrder.LITTLE_ENDIAN) {
            throw new IllegalArgumentException("frames are little endian");
        }
        if (from.getInt(offset) != MAGIC) {
            throw new HoldfastException(
                    Status.BAD_FRAME, "not a Holdfast frame: is the other side speaking to the right port?");
        }
        int version = from.get(offset + 4) & 0xFF;
        if (version != VERSION) {
            throw new HoldfastException(Status.BAD_VERSION, "frame version " + version + ", this side speaks " + VERSION);
        }
        int type = from.get(offset + 5) & 0xFF;
        int flags = from.getShort(offset + 6) & 0xFFFF;
        if ((flags & ~RESPONSE) != 0) {
            throw new HoldfastException(Status.BAD_FRAME, "unknown frame flags " + flags);
        }
        int metaBytes = from.getInt(offset + 16);
        int bodyBytes = from.getInt(offset + 20);
        checkBounds(metaBytes, bodyBytes);
        if (FrameType.name(type).isEmpty()) {
            throw new HoldfastException(Status.BAD_FRAME, "unknown frame type " + type);
        }
        return new FrameHeader(type, flags, from.getLong(offset + 8), metaBytes, bodyBytes, from.getInt(offset + 24),
                from.getInt(offset + CRC_AT));
    }

    /** Check the CRC over the raw header at {@code offset} and the meta section between position and limit. Throws BAD_FRAME. */
    public void checkMeta(ByteBuffer header, int offset, ByteBuffer meta) throws HoldfastException {
        if (crcOf(header, offset, meta) != crc) {
            throw new HoldfastException(Status.BAD_FRAME, "frame checksum mismatch in " + FrameType.name(type) + " request "
                    + Long.toUnsignedString(requestId));
        }
    }

    private static int crcOf(ByteBuffer header, int offset, ByteBuffer meta) {
        CRC32C crc = new CRC32C();
        SeededCrc.update(crc, header, offset, CRC_AT);
        SeededCrc.update(crc, meta, meta.position(), meta.remaining());
        return (int) crc.getValue();
    }

    private static void checkBounds(int metaBytes, int bodyBytes) throws HoldfastException {
        if (metaBytes < 0 || metaBytes > Limits.FRAME_META_BYTES_MAX || bodyBytes < 0
                || bodyBytes > Limits.FRAME_BODY_BYTES_MAX) {
            throw new HoldfastException(Status.TOO_LARGE, "frame too large: meta " + Integer.toUnsignedString(metaBytes)
                    + ", body " + Integer.toUnsignedString(bodyBytes) + " bytes");
        }
    }
}
