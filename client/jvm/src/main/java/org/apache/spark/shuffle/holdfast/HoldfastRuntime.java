package org.apache.spark.shuffle.holdfast;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.shuffle.holdfast.client.BlockReader;
import org.apache.spark.shuffle.holdfast.client.BlockWriter;
import org.apache.spark.shuffle.holdfast.client.HoldfastClient;
import org.apache.spark.shuffle.holdfast.client.MapOutput;
import org.apache.spark.shuffle.holdfast.client.ShuffleGeneration;
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
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.Hello;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The client of a JVM, and what all its tasks share: masters, connections, buffers, and what is known of shuffles.
 *
 * <p>Rules: one per shuffle manager, so one per JVM, closed with it; or one per {@link HoldfastClient#connect}. Opening it
 * makes no call. Everything in it is thread-safe and bounded. Called by the manager, the writer and the reader.
 */
public final class HoldfastRuntime implements HoldfastClient {
    /** Generations whose places are remembered; those of one forgotten are decoded again. */
    private static final int LOCATIONS_MAX = 256;

    private final HoldfastConf conf;
    private final CredentialsProvider credentials = new CredentialsProvider();
    private final Masters masters;
    /** Null on executors. */
    private final Application application;
    private final TokenRenewal tokens;
    private final ExecutorTokens executorTokens = new ExecutorTokens(credentials);
    private final Buffers buffers;
    private final ConnectionPool connections;
    private final PushContext pushContext;
    private final Manifests manifests;
    private final ReadContext readContext;
    private final Generations generations;
    private final Map<ShuffleKey, PartitionLocations> locations = new LinkedHashMap<>();

    /**
     * Opens no connection.
     *
     * @param name of the application whose shuffles this JVM registers; null on executors
     */
    HoldfastRuntime(HoldfastConf conf, String name) {
        this.conf = conf;
        if (conf.security().given()) {
            CredentialsProvider.warmUp();
        }
        masters = new Masters(conf.endpoints(), conf.requestMs(), credentials);
        application = name == null ? null : new Application(conf, masters, name);
        tokens = new TokenRenewal(masters);
        buffers = new Buffers(conf.idle());
        connections = new ConnectionPool(
                () -> Hello.client(masters.clusterId(), masters.raftIndex(), credentials.tokenBytes()), credentials, buffers);
        pushContext = new PushContext(masters, connections, buffers, conf.ack(), conf.ackCopies(), conf.push());
        readContext = new ReadContext(masters, connections, conf.fetch(), new ReadBook(conf.readSettings()));
        manifests = new Manifests(masters, readContext.book()::learn);
        generations = new Generations(masters, Registrations.ofTask(conf));
    }

    /** See {@link HoldfastClient#connect}. Nothing else would serve where Holdfast does not, so workers are waited for. */
    public static HoldfastClient of(Map<String, String> settings, String application) {
        SparkConf given = new SparkConf(false);
        settings.forEach(given::set);
        HoldfastConf conf = HoldfastConf.of(given.set(HoldfastConf.PREFIX + "fallback", "never"));
        conf.security().read(); // so that what is wrong is said now
        return new HoldfastRuntime(conf, Objects.requireNonNull(application));
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

    /** The application that is registered here; null on executors. */
    Application application() {
        return application;
    }

    @Override
    public Placed register(int shuffle, int maps, int partitions) throws HoldfastException {
        if (application == null) {
            throw new HoldfastException(Status.BAD_REQUEST, "shuffle " + shuffle + ": only the driver registers shuffles");
        }
        if (shuffle < 0 || maps < 1 || partitions < 1) { // what is too much the masters say, upon which a shuffle may fall back
            throw new IllegalArgumentException("a shuffle has a number from 0 on, at least one map and one partition; not " + shuffle + ", "
                    + maps + " and " + partitions);
        }
        return application.register(shuffle, new ShuffleShape(partitions, maps, conf.copies(), conf.ack(), conf.ackCopies()));
    }

    @Override
    public BlockWriter writer(ShuffleGeneration shuffle, int map, long attempt, BlockCodec codec) throws HoldfastException {
        Placed placed = Placed.of(shuffle);
        masters.know(placed.clusterId(), placed.registered().raftIndex());
        return writer(placed.registered(), Objects.checkIndex(map, placed.maps()), attempt, compression(codec), null);
    }

    @Override
    public void commit(ShuffleGeneration shuffle, Collection<MapOutput> winners) throws HoldfastException {
        Placed placed = Placed.of(shuffle);
        masters.commit(placed.key(), Winners.array(placed.shape(), winners));
    }

    @Override
    public BlockReader reader(
            ShuffleGeneration shuffle, int startMap, int endMap, int startPartition, int endPartition, BlockCodec codec) throws HoldfastException {
        Objects.checkFromToIndex(startMap, endMap, shuffle.maps());
        Objects.checkFromToIndex(startPartition, endPartition, shuffle.partitions());
        Manifest manifest = manifests.get(Placed.of(shuffle).key(), null);
        ReadRange range = new ReadRange(startMap, endMap, startPartition, endPartition);
        return reader(manifest, range, ExpectedMaps.of(manifest.winners()), ReadCosts.untold(), null, codec);
    }

    @Override
    public void unregister(ShuffleGeneration shuffle) throws HoldfastException {
        ShuffleKey last = Placed.of(shuffle).key().withGeneration(DriverShuffles.ALL_GENERATIONS);
        masters.unregister(last);
        forgetAll(last);
    }

    /** How blocks of any bytes are compressed. */
    Compression compression(BlockCodec codec) {
        return codec == BlockCodec.ENGINE ? Compression.ENGINE : conf.compression();
    }

    /** How the rows of a serialiser are; {@code rows} is null where it has others than those of SQL. */
    Compression compression(RowSerializers.Known rows) {
        return rows == null || !conf.rowPlanes() ? conf.compression() : conf.compression().ofRows(rows.fields());
    }

    /** A writer of one map attempt; {@code encryption} is null where blocks are not encrypted. */
    PushedBlocks writer(RegisteredShuffle registered, int map, long attempt, Compression compression, Encryption encryption)
            throws HoldfastException {
        PushWriter push = new PushWriter(pushContext, registered, locations(registered), map, attempt, compression, encryption);
        return new PushedBlocks(push, map, attempt);
    }

    /** A reader of blocks of a generation; {@code encryption} as the writers'. */
    BlockReader reader(
            Manifest manifest, ReadRange range, ExpectedMaps expected, ReadCosts costs, IoEncryption encryption, BlockCodec codec) {
        FetchReader fetch = new FetchReader(
                readContext, manifest, range.startPartition(), range.endPartition(), range.startMap(), range.endMap(), expected, costs);
        return new DecodedBatches(fetch, encryption, codec, costs, ByteArrays.SHARED);
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
        if (application != null) {
            application.close();
        }
        pushContext.close();
        connections.close();
        masters.close();
    }
}
