package org.apache.spark.shuffle.holdfast.wire;

import java.nio.ByteBuffer;

/** Client to worker, first frame of a connection. The worker refuses another version or cluster and closes. */
public record Hello(int version, int role, long raftIndex, String clusterId, byte[] token) implements Message {
    /** The data-plane protocol that this code speaks. */
    public static final int PROTOCOL_VERSION = 5;
    public static final int CLIENT = 1;
    public static final int WORKER = 2;
    public static final int MASTER = 3;
    private static final byte[] NO_TOKEN = new byte[0];

    /** What a client without a token says. {@code raftIndex}: the highest that it has seen; the worker keeps the highest of all. */
    public static Hello client(String clusterId, long raftIndex) {
        return client(clusterId, raftIndex, NO_TOKEN);
    }

    /** The same with a token, empty where there is no security. */
    public static Hello client(String clusterId, long raftIndex, byte[] token) {
        return new Hello(PROTOCOL_VERSION, CLIENT, raftIndex, clusterId, token);
    }

    public static Hello decode(ByteBuffer data) throws HoldfastException {
        Meta meta = new Meta(data, "HELLO");
        int version = meta.u16();
        int role = meta.u8();
        if (role < CLIENT || role > MASTER) {
            throw meta.wrong("unknown role " + role);
        }
        Hello hello = new Hello(version, role, meta.u64(), meta.text(), meta.blob(Limits.TOKEN_BYTES_MAX));
        meta.end();
        return hello;
    }

    @Override
    public int encodedBytes() {
        return 2 + 1 + 8 + 2 + clusterId.getBytes(java.nio.charset.StandardCharsets.UTF_8).length + 2 + token.length;
    }

    @Override
    public void encode(ByteBuffer to) throws HoldfastException {
        byte[] name = Meta.textBytes(clusterId);
        Meta.checkBlob(token, Limits.TOKEN_BYTES_MAX);
        to.putShort((short) version).put((byte) role).putLong(raftIndex);
        Meta.putBlob(to, name);
        Meta.putBlob(to, token);
    }
}
