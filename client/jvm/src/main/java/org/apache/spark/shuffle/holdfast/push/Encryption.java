package org.apache.spark.shuffle.holdfast.push;

import java.io.IOException;

/**
 * Encrypts the content of batches, for {@code spark.io.encryption}.
 *
 * <p>Rules: called by one thread. A payload is compressed, then encrypted as a whole, then cut where it is longer than a
 * batch; a reader joins, decrypts, decompresses. Made by the shuffle writer, called by {@link PushWriter}.
 */
public interface Encryption {
    /** Returns the bytes [off, off + len) encrypted; the array is not used after the next call. */
    Sealed seal(byte[] data, int off, int len) throws IOException;

    /** Encrypted bytes: [0, length) of the array. */
    record Sealed(byte[] bytes, int length) {}
}
