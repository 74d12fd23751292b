package org.apache.spark.shuffle.holdfast;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import javax.crypto.Cipher;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.SparkEnv;
import org.apache.spark.shuffle.holdfast.push.Encryption;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;
import scala.Option;

/**
 * {@code spark.io.encryption} for shuffle data: AES-CTR with the key that Spark gives to its executors, and a vector of 16 random bytes in front of
 * each payload.
 *
 * <p>Rules: no streams of Spark's CryptoStreamUtils, which cost a cipher and 64 KiB for each batch; one cipher serves all batches of a task. CTR does not
 * authenticate (nor does Spark's own shuffle); damage is what the batch checksums are for. One thread. Made by writers and the reader.
 */
final class IoEncryption implements Encryption {
    private static final int VECTOR_BYTES = 16;
    /** A longer buffer is not kept for shorter payloads. */
    static final int KEPT_BYTES_MAX = 8 << 20;
    private static final byte[] NOTHING = new byte[0];

    private final SecureRandom random = new SecureRandom();
    private final byte[] vector = new byte[VECTOR_BYTES];
    private final SecretKeySpec key;
    private final Cipher cipher;
    private byte[] buffer = NOTHING;

    private IoEncryption(byte[] key) throws HoldfastException {
        this.key = new SecretKeySpec(key, "AES");
        try {
            cipher = Cipher.getInstance("AES/CTR/NoPadding");
        } catch (GeneralSecurityException error) {
            throw failed(error);
        }
    }

    /** With the key of this JVM's Spark, or null if {@code wanted} is false. */
    static IoEncryption of(SparkEnv env, boolean wanted) throws HoldfastException {
        if (!wanted) {
            return null;
        }
        Option<byte[]> key = env.securityManager().getIOEncryptionKey();
        if (key.isEmpty()) {
            throw new HoldfastException(Status.BAD_REQUEST, "the shuffle is encrypted, and Spark gave this executor no key for I/O");
        }
        return new IoEncryption(key.get());
    }

    @Override
    public Sealed seal(byte[] data, int offset, int length) throws HoldfastException {
        ensure(Math.addExact(length, VECTOR_BYTES));
        random.nextBytes(vector);
        System.arraycopy(vector, 0, buffer, 0, VECTOR_BYTES);
        try {
            cipher.init(Cipher.ENCRYPT_MODE, key, new IvParameterSpec(vector));
            int written = cipher.doFinal(data, offset, length, buffer, VECTOR_BYTES);
            return new Sealed(buffer, VECTOR_BYTES + written);
        } catch (GeneralSecurityException error) {
            throw failed(error);
        }
    }

    /** Undoes {@link #seal}; the answer is good until the next call. */
    ByteBuffer open(ByteBuffer payload) throws HoldfastException {
        int length = payload.remaining() - VECTOR_BYTES;
        if (length < 0) {
            throw new HoldfastException(Status.CORRUPT, "an encrypted payload of " + payload.remaining() + " bytes");
        }
        ensure(length);
        payload.get(vector);
        try {
            cipher.init(Cipher.DECRYPT_MODE, key, new IvParameterSpec(vector));
            ByteBuffer plain = ByteBuffer.wrap(buffer).order(payload.order());
            cipher.doFinal(payload, plain);
            return plain.flip();
        } catch (GeneralSecurityException error) {
            throw failed(error);
        }
    }

    private void ensure(int length) {
        int wanted = capacity(buffer.length, length);
        if (wanted != buffer.length) {
            buffer = NOTHING; // two long ones may not fit the heap
            buffer = new byte[wanted];
        }
    }

    /** How long a buffer of {@code have} bytes has to be for a payload of so many. */
    static int capacity(int have, int length) {
        int wanted = (int) Math.min(Integer.MAX_VALUE - 8L, length * 5L / 4);
        return have < length || have > Math.max(KEPT_BYTES_MAX, wanted) ? wanted : have;
    }

    private static HoldfastException failed(GeneralSecurityException error) {
        return new HoldfastException(Status.BAD_REQUEST, "AES-CTR of spark.io.encryption: " + error.getMessage(), error);
    }
}
