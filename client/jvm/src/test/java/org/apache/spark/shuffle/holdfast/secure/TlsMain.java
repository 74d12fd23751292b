package org.apache.spark.shuffle.holdfast.secure;

import static org.apache.spark.shuffle.holdfast.Checks.check;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.net.ServerSocketFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.WorkerConnection;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** TlsChannel against servers that cut records anywhere, stand still, are strangers or no TLS. Arguments: CA, and key stores: good, of another CA, of another name. */
public final class TlsMain {
    private static final int WAIT_MS = 20_000;
    private static CredentialsProvider credentials;
    private static SSLContext context;
    private static ServerSocketFactory good;

    private TlsMain() {}

    public static void main(String[] arguments) throws Exception {
        credentials = TestTls.credentials(arguments[0]);
        context = TestTls.context(arguments[1]);
        good = context.getServerSocketFactory();
        for (int seed = 0; seed < 8; seed++) {
            recordsCutAnywhere(seed);
        }
        aServerThatDoesNotRead();
        ends();
        strangers(TestTls.context(arguments[2]).getServerSocketFactory(), TestTls.context(arguments[3]).getServerSocketFactory());
        standStill();
        System.out.println("ok");
    }

    private interface Story {
        void serve(Socket socket) throws Exception;
    }

    /** Serves one connection after another; what goes wrong there is seen by the client. */
    private static final class Server implements AutoCloseable {
        final ServerSocket listening;

        Server(ServerSocketFactory sockets, Story story) throws IOException {
            listening = sockets.createServerSocket(0, 8, InetAddress.getLoopbackAddress());
            start(() -> {
                while (!listening.isClosed()) {
                    try (Socket socket = listening.accept()) {
                        story.serve(socket);
                    } catch (Exception gone) {
                        continue; // the client looks at what it got
                    }
                }
            });
        }

        @Override
        public void close() throws IOException {
            listening.close();
        }
    }

    private static void start(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    /** A connection, and how to wait for it: only ever after the channel had nothing more. */
    private static final class Client implements AutoCloseable {
        final SocketChannel socket = SocketChannel.open();
        final Selector selector = Selector.open();
        final TlsChannel tls;

        Client(int port) throws IOException {
            socket.connect(new InetSocketAddress("127.0.0.1", port));
            socket.configureBlocking(false);
            tls = credentials.over(socket, "127.0.0.1", port);
        }

        Client shaken() throws IOException {
            for (int wait = tls.handshake(); wait != 0; wait = tls.handshake()) {
                check(await(wait), "the handshake stands still");
            }
            return this;
        }

        boolean await(int operations) throws IOException {
            socket.register(selector, operations);
            int ready = selector.select(WAIT_MS);
            selector.selectedKeys().clear();
            return ready > 0;
        }

        @Override
        public void close() throws IOException {
            tls.close();
            socket.close();
            selector.close();
        }
    }

    private static void echo(Socket socket) throws IOException {
        socket.getInputStream().transferTo(socket.getOutputStream());
    }

    /** Passes bytes on in slices of any length, so that records arrive cut, many at once, or together with what is next. */
    private static Server relay(int port, int seed) throws IOException {
        return new Server(ServerSocketFactory.getDefault(), from -> {
            try (Socket to = new Socket(InetAddress.getLoopbackAddress(), port)) {
                from.setTcpNoDelay(true);
                to.setTcpNoDelay(true);
                start(() -> slices(from, to, new Random(seed)));
                slices(to, from, new Random(-seed));
            }
        });
    }

    private static void slices(Socket from, Socket to, Random random) {
        byte[] bytes = new byte[200_000];
        try {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            // One in four connections goes byte by byte for a while, the others in anything up to many records.
            int single = random.nextInt(4) == 0 ? 3_000 : 0;
            for (int got = in.read(bytes); got >= 0; got = in.read(bytes)) {
                for (int at = 0; at < got; ) {
                    int most = single-- > 0 ? 1 : random.nextBoolean() ? 100 : 100_000;
                    int count = Math.min(got - at, 1 + random.nextInt(most));
                    out.write(bytes, at, count);
                    at += count;
                }
            }
            to.shutdownOutput();
        } catch (IOException gone) {
            return; // the client has all that it wanted
        }
    }

    /** What is sent comes back whole, whatever the cuts, and though both sides change keys all the time. */
    private static void recordsCutAnywhere(int seed) throws Exception {
        Random random = new Random(seed);
        byte[] all = new byte[seed % 2 == 0 ? 3_000_000 : 40_000];
        random.nextBytes(all);
        byte[] came = new byte[all.length];
        try (Server server = new Server(good, TlsMain::echo);
                Server relay = relay(server.listening.getLocalPort(), seed);
                Client client = new Client(relay.listening.getLocalPort()).shaken()) {
            int received = 0;
            for (int at = 0; at < all.length; ) {
                int count = Math.min(all.length - at, 1 + random.nextInt(random.nextBoolean() ? 50 : 90_000));
                ByteBuffer one = ByteBuffer.wrap(all, at, count / 3);
                ByteBuffer two = ByteBuffer.allocateDirect(count - count / 3).put(all, at + count / 3, count - count / 3).flip();
                while (!client.tls.send(one, two)) {
                    received += read(client, random, came, received);
                    client.await(SelectionKey.OP_WRITE | SelectionKey.OP_READ);
                }
                at += count;
                received += read(client, random, came, received);
            }
            while (received < all.length) {
                int got = read(client, random, came, received);
                received += got;
                check(got > 0 || client.await(SelectionKey.OP_READ), "seed " + seed + ": stands still at " + received);
            }
            check(Arrays.equals(all, came), "seed " + seed + ": other bytes");
        }
    }

    /** Reads until there is nothing, into buffers of any size. */
    private static int read(Client client, Random random, byte[] into, int from) throws IOException {
        int at = from;
        while (at < into.length) {
            ByteBuffer small = ByteBuffer.allocateDirect(Math.min(into.length - at, 1 + random.nextInt(random.nextBoolean() ? 20 : 60_000)));
            ByteBuffer more = ByteBuffer.allocate(Math.min(into.length - at - small.capacity(), random.nextInt(30_000)));
            int got = client.tls.read(small, more);
            check(got >= 0, "an end too early");
            check(got == small.position() + more.position(), "a wrong count");
            if (got == 0) {
                break;
            }
            small.flip().get(into, at, small.limit());
            more.flip().get(into, at + small.limit(), more.limit());
            at += got;
        }
        return at - from;
    }

    /** A server that takes nothing is noticed by the bytes that go; once it reads, everything arrives. */
    private static void aServerThatDoesNotRead() throws Exception {
        CountDownLatch go = new CountDownLatch(1);
        try (Server server = new Server(good, socket -> {
            socket.getInputStream().read();
            go.await();
            byte[] all = socket.getInputStream().readNBytes(30_000_000);
            socket.getOutputStream().write(Arrays.hashCode(all));
        });
                Client client = new Client(server.listening.getLocalPort()).shaken()) {
            byte[] all = new byte[30_000_000];
            new Random(1).nextBytes(all);
            ByteBuffer first = ByteBuffer.wrap(new byte[1]);
            ByteBuffer rest = ByteBuffer.wrap(all);
            check(!client.tls.send(first, rest), "30 MB went into nothing");
            long sent = client.tls.sentBytes();
            check(!client.tls.send(first, rest) && client.tls.sentBytes() == sent && rest.remaining() > 10_000_000, "bytes went nowhere");
            go.countDown();
            while (!client.tls.send(first, rest)) {
                check(client.await(SelectionKey.OP_WRITE), "it stands still");
            }
            ByteBuffer answer = ByteBuffer.allocate(1);
            while (client.tls.read(answer) == 0) {
                check(client.await(SelectionKey.OP_READ), "no answer");
            }
            check(answer.get(0) == (byte) Arrays.hashCode(all), "other bytes arrived");
        }
    }

    /** The end of a connection, said or not, is the end after everything that was sent before. */
    private static void ends() throws Exception {
        for (boolean said : new boolean[] {true, false}) {
            byte[] all = new byte[50_000];
            try (Server server = new Server(ServerSocketFactory.getDefault(), socket -> {
                SSLSocket over = (SSLSocket) context.getSocketFactory().createSocket(socket, null, socket.getPort(), false);
                over.setUseClientMode(false);
                over.getOutputStream().write(all);
                if (said) {
                    over.close();
                }
            });
                    Client client = new Client(server.listening.getLocalPort()).shaken()) {
                ByteBuffer into = ByteBuffer.allocate(60_000);
                int got = 0;
                while (got >= 0) {
                    got = client.tls.read(into);
                    check(got != 0 || client.await(SelectionKey.OP_READ), "no end");
                }
                check(into.position() == all.length, "the end came before what was sent: " + into.position());
                check(client.tls.read(into) == -1, "it began again");
            }
        }
    }

    private static void refused(Server server, boolean stranger, String words) throws Exception {
        try (server; Client client = new Client(server.listening.getLocalPort())) {
            client.shaken();
            throw new AssertionError("no error with " + words);
        } catch (IOException right) {
            String reason = TlsChannel.reason(right);
            check(TlsChannel.isStranger(right) == stranger && reason.contains(words), "wrong words: " + reason);
        }
    }

    /** Whoever is not who it should be is refused, in words that say why. */
    private static void strangers(ServerSocketFactory otherCa, ServerSocketFactory otherName) throws Exception {
        refused(new Server(otherCa, TlsMain::echo), true, "made by another CA");
        refused(new Server(otherName, TlsMain::echo), true, "127.0.0.1");
        ServerSocketFactory plain = ServerSocketFactory.getDefault();
        refused(new Server(plain, socket -> {
            socket.getInputStream().read();
            socket.getOutputStream().write("HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            socket.getInputStream().readAllBytes();
        }), true, "it does not speak TLS");
        refused(new Server(plain, socket -> socket.getInputStream().readNBytes(200)), false, "");
        refused(new Server(good, socket -> {
            ((SSLSocket) socket).setEnabledProtocols(new String[] {"TLSv1.2"});
            echo(socket);
        }), false, "TLS");
    }

    /** A server that accepts and says nothing costs a worker's connection the time it was given, and no more. */
    private static void standStill() throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        Buffers buffers = new Buffers(1 << 20);
        try (Server silent = new Server(ServerSocketFactory.getDefault(), socket -> done.await(WAIT_MS, TimeUnit.MILLISECONDS))) {
            String address = "127.0.0.1:" + silent.listening.getLocalPort();
            WorkerConnection.open(7, address, Hello.client("c", 0, credentials.tokenBytes()), credentials, 300, buffers);
            throw new AssertionError("a silent server greeted");
        } catch (HoldfastException right) {
            check(right.status() == Status.UNAVAILABLE && right.getMessage().contains("it does not answer in TLS"), right.getMessage());
            check(!right.getMessage().contains(credentials.token()), "the token is in the words");
        } finally {
            done.countDown();
        }
        check(buffers.taken() == 0, buffers.taken() + " buffers are left");
    }
}
