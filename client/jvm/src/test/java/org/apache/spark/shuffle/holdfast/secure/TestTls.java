package org.apache.spark.shuffle.holdfast.secure;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.Security;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

/** What test programs need to be both sides of a secured connection; the files are made by tests/support/tls.py. */
public final class TestTls {
    private static final char[] PASSWORD = "holdfast".toCharArray();

    private TestTls() {}

    /** What a client shows, with a token that nobody made. */
    public static CredentialsProvider credentials(String ca) throws Exception {
        return new CredentialsProvider(Files.readString(Path.of(ca)), token(0, 1L << 40, "subject"));
    }

    /** What the environment of this program says is shown: nothing, or what the files of HOLDFAST_CA and HOLDFAST_TOKEN_FILE hold. */
    public static CredentialsProvider ofEnvironment() {
        String ca = System.getenv("HOLDFAST_CA");
        try {
            return ca == null ? new CredentialsProvider()
                    : new CredentialsProvider(Files.readString(Path.of(ca)), Files.readString(Path.of(System.getenv("HOLDFAST_TOKEN_FILE"))).trim());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** A token of an application with these times, without a MAC that anybody would accept. */
    public static String token(long issued, long expires, String subject) {
        ByteBuffer raw = ByteBuffer.allocate(17 + subject.length() + 32).order(ByteOrder.LITTLE_ENDIAN);
        raw.put((byte) 1).putLong(issued).putLong(expires).put(subject.getBytes(java.nio.charset.StandardCharsets.US_ASCII));
        return "hft1." + Base64.getUrlEncoder().withoutPadding().encodeToString(raw.array());
    }

    /** A server with the key and certificate of a PKCS #12 file. From now on both sides of this JVM change keys with every 64 KiB. */
    public static SSLContext context(String keyStore) throws Exception {
        Security.setProperty("jdk.tls.keyLimits", "AES/GCM/NoPadding KeyUpdate 2^16");
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(Path.of(keyStore))) {
            keys.load(in, PASSWORD);
        }
        KeyManagerFactory managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        managers.init(keys, PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(managers.getKeyManagers(), null, null);
        return context;
    }
}
