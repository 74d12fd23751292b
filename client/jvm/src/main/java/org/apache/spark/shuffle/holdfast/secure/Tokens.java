package org.apache.spark.shuffle.holdfast.secure;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Base64;

/**
 * The unverified content of a token: its subject and its expiry. The layout is that of
 * {@code common/security/tokens.py}. Pure.
 */
final class Tokens {
    static final String PREFIX = "hft1.";
    private static final byte APPLICATION = 1;
    /** Of an application's subject; what is behind that is for servers. */
    private static final int INSTANCE_BYTES = 16;
    /** Kind u8, issued u64, expires u64. */
    private static final int HEAD_BYTES = 1 + 8 + 8;
    private static final int MAC_BYTES = 32;
    private static final Times NONE = new Times(0, 0, new byte[0]);

    /** Seconds since 1970, and whom it is for: an application's instance, or a name. */
    record Times(long issued, long expires, byte[] subject) {
        /** When half of its life is over. */
        long half() {
            return issued + (expires - issued) / 2;
        }

        boolean sameSubject(Times other) {
            return Arrays.equals(subject, other.subject);
        }
    }

    private Tokens() {}

    /** Zeros for what is no token. */
    static Times of(String token) {
        if (!token.startsWith(PREFIX)) {
            return NONE;
        }
        byte[] raw;
        try {
            raw = Base64.getUrlDecoder().decode(token.substring(PREFIX.length()));
        } catch (IllegalArgumentException damaged) {
            return NONE;
        }
        if (raw.length < HEAD_BYTES + MAC_BYTES) {
            return NONE;
        }
        ByteBuffer head = ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN);
        int end = raw.length - MAC_BYTES;
        if (raw[0] == APPLICATION) {
            end = Math.min(end, HEAD_BYTES + INSTANCE_BYTES);
        }
        return new Times(head.getLong(1), head.getLong(9), Arrays.copyOfRange(raw, HEAD_BYTES, end));
    }
}
