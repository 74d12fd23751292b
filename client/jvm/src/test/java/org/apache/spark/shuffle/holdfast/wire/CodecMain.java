package org.apache.spark.shuffle.holdfast.wire;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Undoes the compression of every payload of a file and compresses it again into another. Both files: per payload u8 codec, u32
 * length (big endian), payload. Every other one goes through direct buffers. The first argument is how many words rows have.
 */
public final class CodecMain {
    private CodecMain() {}

    public static void main(String[] args) throws Exception {
        try (DataInputStream in = new DataInputStream(Files.newInputStream(Path.of(args[1])));
                DataOutputStream out = new DataOutputStream(Files.newOutputStream(Path.of(args[2])))) {
            byte[] reuse = null;
            for (int i = 0; ; i++) {
                Codec codec = codec(in);
                if (codec == null) {
                    break;
                }
                byte[] payload = new byte[in.readInt()];
                in.readFully(payload);
                ByteBuffer from = buffer(payload.length, i % 2 == 0).put(payload).flip();
                int size = codec.originalBytes(from);
                reuse = codec.decompress(from, reuse);
                ByteBuffer to = buffer(codec.bound(size), i % 2 == 0);
                if (codec != codec.asTheyAre()) {
                    codec.compressRows(reuse, 0, size, Integer.parseInt(args[0]), to, Codec.USUAL_LEVEL);
                } else {
                    codec.compress(reuse, 0, size, to, Codec.USUAL_LEVEL);
                }
                byte[] again = new byte[to.position()];
                to.flip().get(again);
                out.writeByte(codec.number());
                out.writeInt(again.length);
                out.write(again);
            }
        }
    }

    private static Codec codec(DataInputStream in) throws IOException {
        try {
            return Codec.of(in.readUnsignedByte());
        } catch (EOFException end) {
            return null;
        }
    }

    private static ByteBuffer buffer(int size, boolean direct) {
        return (direct ? ByteBuffer.allocateDirect(size) : ByteBuffer.allocate(size)).order(ByteOrder.LITTLE_ENDIAN);
    }
}
