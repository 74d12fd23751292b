package org.apache.spark.shuffle.holdfast.data;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import javax.net.ServerSocketFactory;
import org.apache.spark.shuffle.holdfast.wire.FrameHeader;
import org.apache.spark.shuffle.holdfast.wire.FrameType;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HelloOk;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Takes one connection after another, each served by `story` once it has said HELLO. */
public final class FakeWorker implements AutoCloseable {
    /** What it does after the greeting. */
    public interface Story {
        void serve(DataInputStream in, OutputStream out) throws Exception;
    }

    /** Of all that are made from now on: plain, or those of a secured cluster. */
    static ServerSocketFactory sockets = ServerSocketFactory.getDefault();

    private final ServerSocket server = sockets.createServerSocket(0, 8, InetAddress.getLoopbackAddress());
    private final Thread thread;
    volatile Throwable failed;
    volatile int accepted;

    /** Listens; in its greeting it says that it is this worker. */
    public FakeWorker(int answersAs, Story story) throws IOException {
        this(answersAs, (in, out) -> {}, story);
    }

    /** The same; {@code first} is what it does before it answers a HELLO. */
    public FakeWorker(int answersAs, Story first, Story story) throws IOException {
        thread = new Thread(() -> {
            for (;;) {
                try (Socket socket = server.accept()) {
                    accepted++;
                    DataInputStream in = new DataInputStream(socket.getInputStream());
                    readFrame(in);
                    OutputStream out = socket.getOutputStream();
                    first.serve(in, out);
                    out.write(frame(FrameType.HELLO, 1, new HelloOk(Hello.PROTOCOL_VERSION, answersAs, 3, Instance.random()).encode(), new byte[0], Status.OK));
                    story.serve(in, out);
                    while (in.read() >= 0) {
                        // until the client is gone
                    }
                } catch (IOException gone) {
                    if (server.isClosed()) {
                        return;
                    }
                } catch (Exception | Error wrong) {
                    failed = wrong;
                    return;
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** "host:port". */
    public String address() {
        return "127.0.0.1:" + server.getLocalPort();
    }

    @Override
    public void close() throws IOException {
        server.close();
    }

    /** A frame that answers. */
    public static byte[] frame(int type, long request, ByteBuffer meta, byte[] body, int status) throws HoldfastException {
        ByteBuffer made = ByteBuffer.allocate(FrameHeader.SIZE + meta.remaining() + body.length);
        FrameHeader.encode(made, type, FrameHeader.RESPONSE, request, meta, body.length, status);
        return made.put(meta).put(body).array();
    }

    /** A frame of the client. */
    public record Came(FrameHeader header, byte[] meta, byte[] body) {}

    /** Returns the next frame. */
    public static Came readFrame(DataInputStream in) throws IOException {
        ByteBuffer head = ByteBuffer.wrap(in.readNBytes(FrameHeader.SIZE)).order(ByteOrder.LITTLE_ENDIAN);
        FrameHeader header = FrameHeader.decode(head, 0);
        byte[] meta = in.readNBytes(header.metaBytes());
        header.checkMeta(head, 0, ByteBuffer.wrap(meta));
        return new Came(header, meta, in.readNBytes(header.bodyBytes()));
    }
}
