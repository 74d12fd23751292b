package org.apache.spark.shuffle.holdfast.client;

import java.util.Collection;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.HoldfastRuntime;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;

/**
 * A cluster of Holdfast, as programs see it that shuffle blocks of bytes. One serves all threads of a JVM.
 *
 * <p>The life of a shuffle: a driver {@linkplain #register registers} it, tasks {@linkplain #writer write} one {@link MapOutput} per attempt, the
 * driver {@linkplain #commit commits} the attempts that won, tasks {@linkplain #reader read}, the driver {@linkplain #unregister drops} it.
 *
 * <pre>{@code
 * try (HoldfastClient client = HoldfastClient.connect(Map.of("spark.holdfast.master.endpoints", "host:7070"), "my job")) {
 *     ShuffleGeneration shuffle = client.register(0, maps, partitions);
 *     try (BlockWriter writer = client.writer(shuffle, map, attempt, BlockCodec.ENGINE)) {
 *         writer.write(partition, block, rows);
 *         outputs.add(writer.finish());
 *     }
 *     client.commit(shuffle, outputs);
 *     try (BlockReader reader = client.reader(shuffle, 0, partitions, BlockCodec.ENGINE)) {
 *         while (reader.next()) {
 *             take(reader.partition(), reader.block());
 *         }
 *     }
 * }
 * }</pre>
 *
 * <p>Thread-safe. Calls wait: for masters up to {@code spark.holdfast.request.timeout}, for workers as their own javadoc says; an interrupt ends
 * them with an error and stays set. Errors are a {@link HoldfastException} whose status decides what to do; calls of a closed client are one, too.
 * Wrong arguments are unchecked exceptions. Memory: direct buffers, within what {@code spark.holdfast.push.*} and {@code fetch.*} allow each writer
 * and reader.
 *
 * <p>Inside of Spark the client is that of the shuffle manager, {@code HoldfastShuffleManager.client()}, which closes it.
 */
public interface HoldfastClient extends AutoCloseable {
    /**
     * Makes a client. Opens no connection: a wrong address shows with the first call.
     *
     * @param settings the keys {@code spark.holdfast.*} of docs/use/spark.md; {@code spark.holdfast.master.endpoints} has to be there. Where the
     *     cluster is secured {@code security.ca} and {@code security.tokenFile} name files on this machine
     * @param application what the cluster shows as the name of the application that {@link #register} makes
     * @throws IllegalArgumentException that names the key which is wrong
     */
    static HoldfastClient connect(Map<String, String> settings, String application) {
        return HoldfastRuntime.of(settings, application);
    }

    /**
     * Registers a shuffle of this client's application; the first one registers the application, too, with a lease that this client renews. The
     * same again gives the same shuffle. Copies and acknowledgement level are those of the settings. Waits for workers with room up to
     * {@code spark.holdfast.no_room.grace}.
     *
     * @param shuffle a number of the caller's, unique in the application, from 0 on
     * @param maps how many map tasks write, 1 to 1,000,000
     * @param partitions 1 to 1,000,000
     * @return what tasks need; to be sent to them by Java serialization
     * @throws HoldfastException NO_ROOM, QUOTA_EXCEEDED, UNAVAILABLE; CONFLICT if the number has another shape; BAD_REQUEST for more partitions, and on a Spark
     *     executor
     */
    ShuffleGeneration register(int shuffle, int maps, int partitions) throws HoldfastException;

    /**
     * Opens the output of one attempt of one map. It connects in the background.
     *
     * @param map the number of the map, from 0 on
     * @param attempt unique among all attempts of this map, also those that run at the same time; not -1
     * @param codec what blocks are; readers name the same
     * @throws HoldfastException if the places of the shuffle cannot be decoded
     */
    BlockWriter writer(ShuffleGeneration shuffle, int map, long attempt, BlockCodec codec) throws HoldfastException;

    /**
     * Makes one attempt of each map the one that is read, for ever; returns when that is recorded. The same again is no error. Waits up to three
     * minutes for workers that are away.
     *
     * @param winners one output of each map
     * @throws IllegalArgumentException if a map is missing, twice, or has another number of partitions
     * @throws HoldfastException CONFLICT if other attempts were committed before; APPLICATION_GONE, UNKNOWN_SHUFFLE, UNAVAILABLE
     */
    void commit(ShuffleGeneration shuffle, Collection<MapOutput> winners) throws HoldfastException;

    /**
     * Opens a read of the partitions [startPartition, endPartition) of the maps [startMap, endMap) of a shuffle that is committed, or is being:
     * the commit is waited for up to three minutes.
     *
     * @param codec what the writers named
     * @throws HoldfastException NOT_COMMITTED, APPLICATION_GONE, UNKNOWN_SHUFFLE, UNAVAILABLE
     */
    BlockReader reader(ShuffleGeneration shuffle, int startMap, int endMap, int startPartition, int endPartition, BlockCodec codec)
            throws HoldfastException;

    /** The same of all maps. */
    default BlockReader reader(ShuffleGeneration shuffle, int startPartition, int endPartition, BlockCodec codec) throws HoldfastException {
        return reader(shuffle, 0, shuffle.maps(), startPartition, endPartition, codec);
    }

    /**
     * Drops a shuffle and its data. One that is not dropped goes with its application.
     *
     * @throws HoldfastException UNAVAILABLE; dropping one that is not there is no error
     */
    void unregister(ShuffleGeneration shuffle) throws HoldfastException;

    /**
     * Closes connections and gives the application back, upon which its shuffles are dropped. Writers and readers that are open fail. Harmless when
     * repeated.
     */
    @Override
    void close();
}
