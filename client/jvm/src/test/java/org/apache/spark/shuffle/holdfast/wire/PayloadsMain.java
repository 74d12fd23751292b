package org.apache.spark.shuffle.holdfast.wire;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;

/**
 * What Java makes of payloads that may be anything, for tests/fuzz/payloads.py. In: u32 count, then per payload u8 codec, u32 length, payload. Out, for
 * each: u8 1 if it was undone and 0 if it was refused as CORRUPT, u32 length and u32 CRC-32 of the original. Anything else ends it. All big endian. Every
 * other one goes through a direct buffer.
 */
public final class PayloadsMain {
    private PayloadsMain() {}

    public static void main(String[] args) throws Exception {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(Path.of(args[0]))));
                DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(args[1]))))) {
            int count = in.readInt();
            for (int each = 0; each < count; each++) {
                Codec codec = Codec.of(in.readUnsignedByte());
                byte[] payload = new byte[in.readInt()];
                in.readFully(payload);
                ByteBuffer from = (each % 2 == 0 ? ByteBuffer.allocateDirect(payload.length) : ByteBuffer.allocate(payload.length))
                        .order(ByteOrder.LITTLE_ENDIAN).put(payload).flip();
                try {
                    int size = codec.originalBytes(from);
                    byte[] original = codec.decompress(from, null);
                    CRC32 crc = new CRC32();
                    crc.update(original, 0, size);
                    out.writeByte(1);
                    out.writeInt(size);
                    out.writeInt((int) crc.getValue());
                } catch (HoldfastException refused) {
                    if (refused.status() != Status.CORRUPT) {
                        throw refused;
                    }
                    out.writeByte(0);
                    out.writeInt(0);
                    out.writeInt(0);
                }
            }
        }
        System.out.println("ok");
    }
}
