package org.apache.spark.shuffle.holdfast.secure;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/**
 * The credentials of a JVM: its token, and the CA of masters and workers. Empty without security: then connections are plain.
 *
 * <p>Rules: the token is never part of a text, not even of this object's, and this is not serialisable: whatever holds it is no part of a task. Tokens of
 * one application replace one another by when they end; that of a later application replaces all before. Thread-safe. One per
 * JVM is used for connecting (the runtime's); the driver's is sent to executors through its endpoint.
 */
public final class CredentialsProvider {
    private static final String PROTOCOL = "TLSv1.3";

    /** What should be a token is none. */
    public static final class NoTokenException extends IllegalArgumentException {
        private static final long serialVersionUID = 1L;

        NoTokenException() {
            super("there is no token in it; one begins with " + Tokens.PREFIX);
        }
    }

    private record State(String caPem, SSLContext context, String token, Tokens.Times times) {
        /** Records print all that they hold. */
        @Override
        public String toString() {
            return "State(…)";
        }
    }

    private volatile State state;
    private final boolean fixed;

    /** Nothing is shown yet. */
    public CredentialsProvider() {
        fixed = false;
    }

    /**
     * This CA and this token.
     *
     * @param caPem certificates in PEM. Throws IllegalArgumentException without one
     * @param token Throws NoTokenException if it is none
     */
    public CredentialsProvider(String caPem, String token) {
        if (Tokens.of(token).expires() == 0) {
            throw new NoTokenException();
        }
        state = new State(caPem, context(caPem), token, Tokens.of(token));
        fixed = true;
    }

    /** Whether it was made with a token of its own, so that no newer one will come. */
    public boolean isFixed() {
        return fixed;
    }

    /** Have the JVM load what TLS needs, on a thread of its own: the first connection otherwise waits for that. */
    public static void warmUp() {
        Thread thread = new Thread(() -> {
            try {
                SSLContext context = SSLContext.getInstance(PROTOCOL);
                context.init(null, new TrustManager[0], null);
                SSLEngine engine = context.createSSLEngine("localhost", 1);
                engine.setUseClientMode(true);
                engine.beginHandshake();
                engine.wrap(ByteBuffer.allocate(0), ByteBuffer.allocate(engine.getSession().getPacketBufferSize()));
            } catch (GeneralSecurityException | SSLException later) {
                return; // the next connection gets the error again, and has a caller for it
            }
        }, "holdfast-tls");
        thread.setDaemon(true);
        thread.start();
    }

    /** Whether servers are spoken to through TLS only. */
    public boolean secure() {
        return state != null;
    }

    /** The current token, empty without one. */
    public String token() {
        State now = state;
        return now == null ? "" : now.token();
    }

    /** CA and token as one JVM gives them to another; nothing where there is no security. */
    public String[] carried() {
        State now = state;
        return now == null ? new String[0] : new String[] {now.caPem(), now.token()};
    }

    /** Whether the token is this application's and has not ended. */
    public boolean isFor(byte[] application) {
        State now = state;
        return now != null && Arrays.equals(now.times().subject(), application) && Instant.now().getEpochSecond() < now.times().expires();
    }

    /** Whether a text is a token, or was meant to be one. */
    public static boolean isToken(String text) {
        return text.startsWith(Tokens.PREFIX);
    }

    /** The same token as HELLO carries it. */
    public byte[] tokenBytes() {
        return token().getBytes(StandardCharsets.US_ASCII);
    }

    /** The same CA with another token. Throws NoTokenException. */
    public CredentialsProvider with(String token) {
        return new CredentialsProvider(state.caPem(), token);
    }

    /** Show this token from now on, unless it is empty, or the one that is shown ends later. */
    public synchronized void renew(String token) {
        Tokens.Times times = Tokens.of(token);
        if (state != null && times.expires() >= state.times().expires()) {
            state = new State(state.caPem(), state.context(), token, times);
        }
    }

    /** Show what another one shows from now on, unless this one has a newer token. */
    public void learn(CredentialsProvider other) {
        State theirs = other.state;
        State mine = state;
        if (theirs == null || (mine != null && mine.token().equals(theirs.token()))) {
            return;
        }
        synchronized (this) {
            if (state == null || newer(theirs.times(), state.times())) {
                boolean sameCa = state != null && state.caPem().equals(theirs.caPem());
                SSLContext context = sameCa ? state.context() : theirs.context();
                state = new State(theirs.caPem(), context, theirs.token(), theirs.times());
            }
        }
    }

    private static boolean newer(Tokens.Times theirs, Tokens.Times mine) {
        return theirs.sameSubject(mine) ? theirs.expires() > mine.expires() : theirs.issued() >= mine.issued();
    }

    /** Milliseconds until half of the token's life is over; negative afterwards. */
    public long untilHalfMs() {
        State now = state;
        return now == null ? Long.MAX_VALUE : now.times().half() * 1_000 - Instant.now().toEpochMilli();
    }

    /** Whether a connection that showed this token should not be used again: it is another application's, or half over while there is a newer one. */
    public boolean outdated(byte[] token) {
        State now = state;
        if (now == null || now.token().equals(new String(token, StandardCharsets.US_ASCII))) {
            return false;
        }
        Tokens.Times then = Tokens.of(new String(token, StandardCharsets.US_ASCII));
        return !then.sameSubject(now.times()) || Instant.now().getEpochSecond() >= then.half();
    }

    /**
     * TLS over a socket that is connected, to a server whose certificate has to be the CA's and name {@code host}.
     *
     * @param host as in the address: a name, or an IP address without brackets
     */
    public TlsChannel over(SocketChannel socket, String host, int port) {
        return new TlsChannel(socket, engine(host, port));
    }

    SSLEngine engine(String host, int port) {
        SSLEngine engine = state.context().createSSLEngine(host, port);
        engine.setUseClientMode(true);
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setProtocols(new String[] {PROTOCOL});
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        engine.setSSLParameters(parameters);
        return engine;
    }

    @Override
    public String toString() {
        return "CredentialsProvider(…)";
    }

    private static SSLContext context(String caPem) {
        try {
            Collection<? extends Certificate> found = CertificateFactory.getInstance("X.509")
                    .generateCertificates(new ByteArrayInputStream(caPem.getBytes(StandardCharsets.UTF_8)));
            if (found.isEmpty()) {
                throw new IllegalArgumentException("there is no certificate in PEM in it");
            }
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            for (Certificate each : found) {
                store.setCertificateEntry("ca-" + store.size(), each);
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            SSLContext context = SSLContext.getInstance(PROTOCOL);
            context.init(null, trust.getTrustManagers(), null);
            return context;
        } catch (GeneralSecurityException | IOException error) {
            throw new IllegalArgumentException("there is no certificate in PEM in it: " + error.getMessage(), error);
        }
    }
}
