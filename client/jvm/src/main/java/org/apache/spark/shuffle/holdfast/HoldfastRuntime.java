package org.apache.spark.shuffle.holdfast;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.control.Manifest;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.control.RegisteredShuffle;
import org.apache.spark.shuffle.holdfast.data.Buffers;
import org.apache.spark.shuffle.holdfast.data.ConnectionPool;
import org.apache.spark.shuffle.holdfast.fetch.ExpectedMaps;
import org.apache.spark.shuffle.holdfast.fetch.FetchReader;
import org.apache.spark.shuffle.holdfast.fetch.Manifests;
import org.apache.spark.shuffle.holdfast.fetch.ReadBook;
import org.apache.spark.shuffle.holdfast.fetch.ReadContext;
import org.apache.spark.shuffle.holdfast.fetch.ReadCosts;
import org.apache.spark.shuffle.holdfast.push.Compression;
import org.apache.spark.shuffle.holdfast.push.Encryption;
import org.apache.spark.shuffle.holdfast.push.PartitionLocations;
import org.apache.spark.shuffle.holdfast.push.PushContext;
import org.apache.spark.shuffle.holdfast.push.PushWriter;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/**
 * What all tasks of a JVM share: masters, connections, buffers, and what is known of shuffles.
 *
 * <p>Rules: one per shuffle manager, so one per JVM; made when the first task or registration needs it, closed with the manager. Opening it
 * makes no call. Everything in it is thread-safe and bounded. Called by the manager, the writer and the reader.
 */
public final class HoldfastRuntime implements AutoCloseable {
    /** Generations whose places are remembered; those of one forgotten are decoded again. */
    private static final int LOCATIONS_MAX = 256;

    private final HoldfastConf conf;
    private final CredentialsProvider credentials = new CredentialsProvider();
    private final Masters masters;
    private final TokenRenewal tokens;
    private final ExecutorTokens executorTokens = new ExecutorTokens(credentials);
    private final Buffers buffers;
    private final ConnectionPool connections;
    private final PushContext pushContext;
    private final Manifests manifests;
    private final ReadContext readContext;
    private final Generations generations;
    private final Map<ShuffleKey, PartitionLocations> locations = new LinkedHashMap<>();

    /** Opens no connection. */
    public HoldfastRuntime(HoldfastConf conf) {
        this.conf = conf;
        if (conf.security().given()) {
            CredentialsProvider.warmUp();
        }
        masters = new Masters(conf.endpoints(), conf.requestMs(), credentials);
        tokens = new TokenRenewal(masters);
        buffers = new Buffers(conf.idle());
        connections = new ConnectionPool(
                () -> Hello.client(masters.clusterId(), masters.raftIndex(), credentials.tokenBytes()), credentials, buffers);
        pushContext = new PushContext(masters, connections, buffers, conf.ack(), conf.ackCopies(), conf.push());
        readContext = new ReadContext(masters, connections, conf.fetch(), new ReadBook(conf.readSettings()));
        manifests = new Manifests(masters, readContext.book()::learn);
        generations = new Generations(masters, Registrations.ofTask(conf));
    }

    /** The settings. */
    public HoldfastConf conf() {
        return conf;
    }

    /** What all connections of this JVM show; empty until a lease or, on executors, the driver brings it, and without security. */
    public CredentialsProvider credentials() {
        return credentials;
    }

    /** Renews the token while tasks need it. */
    TokenRenewal tokens() {
        return tokens;
    }

    /** Brings tokens to executors. */
    ExecutorTokens executorTokens() {
        return executorTokens;
    }

    /** The masters. */
    public Masters masters() {
        return masters;
    }

    /** Connections to workers. */
    public ConnectionPool connections() {
        return connections;
    }

    /** Direct memory for frames. */
    public Buffers buffers() {
        return buffers;
    }

    /** What writers share. */
    public PushContext pushContext() {
        return pushContext;
    }

    /** Manifests of committed generations. */
    public Manifests manifests() {
        return manifests;
    }

    /** Which generation tasks write to. */
    public Generations generations() {
        return generations;
    }

    /** A writer of one map attempt; {@code rows} is null where payloads are not rows of SQL, {@code encryption} where they are not encrypted. */
    PushWriter pushWriter(RegisteredShuffle registered, int map, long attempt, RowSerializers.Known rows, Encryption encryption)
            throws HoldfastException {
        Compression compression = rows == null || !conf.rowPlanes() ? conf.compression() : conf.compression().ofRows(rows.fields());
        return new PushWriter(pushContext, registered, locations(registered), map, attempt, compression, encryption);
    }

    /** The manifest of a generation; commits it first if needed, with the winners of Spark's statuses. */
    Manifest manifest(HoldfastShuffleHandle<?, ?, ?> handle, ShuffleKey key) throws HoldfastException {
        return manifests.get(key, () -> Winners.of(key, handle.partitions()));
    }

    /** A reader of a range of partitions of a range of maps. */
    FetchReader fetchReader(
            Manifest manifest, int startPartition, int endPartition, int startMap, int endMap, ExpectedMaps expected, ReadCosts costs)
            throws HoldfastException {
        return new FetchReader(readContext, manifest, startPartition, endPartition, startMap, endMap, expected, costs);
    }

    /** Where the partitions of a generation take batches now: one object for all tasks of the JVM. */
    private PartitionLocations locations(RegisteredShuffle registered) throws HoldfastException {
        synchronized (locations) {
            PartitionLocations found = locations.get(registered.key());
            if (found == null) {
                found = new PartitionLocations(registered);
                if (locations.size() >= LOCATIONS_MAX) {
                    locations.remove(locations.keySet().iterator().next());
                }
                locations.put(registered.key(), found);
            }
            return found;
        }
    }

    /** All generations of a shuffle up to this one were dropped: forgets them, without a call. */
    void forget(ShuffleKey upTo) {
        manifests.forget(upTo);
        synchronized (locations) {
            locations.keySet().removeIf(each -> each.shuffle() == upTo.shuffle() && each.generation() <= upTo.generation());
        }
    }

    /** The shuffle was dropped; called with the key of its last generation. */
    void forgetAll(ShuffleKey last) {
        forget(last);
        generations.forget(last.shuffle());
    }

    @Override
    public void close() {
        tokens.close();
        pushContext.close();
        connections.close();
        masters.close();
    }
}
