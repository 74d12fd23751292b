package org.apache.spark.shuffle.holdfast.secure;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/**
 * Sockets and heap buffers. The JDK copies these through direct memory of its own; where the JVM has none left that is an OutOfMemoryError, for which
 * Spark ends an executor with all its tasks. Here it is an IOException, as of any call that did not go through and may later. Called by
 * {@link TlsChannel} and the connections to the masters.
 */
public final class HeapIo {
    private HeapIo() {}

    /** As {@link SocketChannel#read(ByteBuffer)}. */
    public static int read(SocketChannel socket, ByteBuffer into) throws IOException {
        try {
            return socket.read(into);
        } catch (OutOfMemoryError full) {
            throw noMemory(full);
        }
    }

    /** As {@link SocketChannel#write(ByteBuffer)}. */
    public static int write(SocketChannel socket, ByteBuffer from) throws IOException {
        try {
            return socket.write(from);
        } catch (OutOfMemoryError full) {
            throw noMemory(full);
        }
    }

    /** The error itself is no cause: Spark looks for it among causes, too. */
    private static IOException noMemory(OutOfMemoryError full) {
        return new IOException("the JVM has no direct memory left: " + full.getMessage());
    }
}
