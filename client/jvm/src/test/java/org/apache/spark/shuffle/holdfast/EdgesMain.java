package org.apache.spark.shuffle.holdfast;

import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.executor.TempShuffleReadMetrics;
import org.apache.spark.shuffle.holdfast.client.BlockCodec;
import org.apache.spark.shuffle.holdfast.control.ApplicationLease;
import org.apache.spark.shuffle.holdfast.fetch.BatchSource;
import org.apache.spark.shuffle.holdfast.fetch.DamagedSource;
import org.apache.spark.shuffle.holdfast.fetch.HaltedSource;
import org.apache.spark.shuffle.holdfast.fetch.ReadSettings;
import org.apache.spark.shuffle.holdfast.push.Compression;
import org.apache.spark.shuffle.holdfast.wire.ByteArrays;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** What Spark and its users may do to the plug-in: wrong settings, long names, a task that ends beside its reader. Run by tests/jvm/test_edges.py. */
public final class EdgesMain {
    private EdgesMain() {}

    /** Runs all, or with an argument the end beside a reader alone; an error ends it. */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            settings();
            names();
            counts();
            nothingBehindDamage();
            encryptedRecords();
        }
        closedBesideTheReader();
        System.out.println("ok");
    }

    private static void settings() {
        SparkConf good = new SparkConf(false).set("spark.holdfast.master.endpoints", "one:1, two:2")
                .set("spark.holdfast.cluster.id", " here ").set("spark.holdfast.lease", "10s").set("spark.holdfast.codec", "zstd")
                .set("spark.holdfast.push.frame", "2m");
        HoldfastConf read = HoldfastConf.of(good);
        check(read.clusterId().equals("here") && read.leaseMs() == 10_000 && read.compression().equals(Compression.of(Codec.ZSTD, 1)), "settings: " + read);
        check(HoldfastConf.of(good.clone().remove("spark.holdfast.lease")).leaseMs() == 0, "no lease is the cluster's");
        refused(good, "replicatoin", "2", "spark.holdfast.replication meant?");
        refused(good, "master.endpoints", "nohost", "host:port");
        refused(good, "master.endpoints", "http://one:1", "host:port");
        refused(good, "master.endpoints", " ", "is not set");
        refused(good, "lease", "600", "1000 to");
        refused(good, "lease", "long", "is a time");
        refused(good, "replication", "6", "1 to 5");
        refused(good, "ack.copies", "2", "1 to 1");
        refused(good.clone().set("spark.holdfast.replication", "3"), "ack.copies", "0", "1 to 3");
        check(HoldfastConf.of(good.clone().set("spark.holdfast.replication", "3")).ackCopies() == 3, "all copies acknowledge");
        refused(good, "codec", "snappy", "none, lz4, zstd");
        refused(good, "codec.rowPlanes", "maybe", "true, false");
        refused(good, "push.frame", "1g", "bytes, not");
        refused(good, "fallback", "perhaps", "auto, never");
        check(read.tags().isEmpty(), "no tags: any worker");
        check(HoldfastConf.of(good.clone().set("spark.holdfast.tags", "ssd, etl-2,")).tags().equals(List.of("ssd", "etl-2")), "tags");
        refused(good, "tags", "ssd etl", "separated by commas");
        refused(good, "tags", "a,".repeat(17), "0 to 16 of them, not 17");
        reads(good);
        security(good);
        compression(good.clone().remove("spark.holdfast.codec"));
        fallback(good);
    }

    /** Two files or none; what is in them is no part of any sentence. Executors, which do not have them, only need the settings. */
    private static void security(SparkConf good) {
        check(!HoldfastConf.of(good).security().given(), "security by default");
        for (String[] each : new String[][] {{SecurityFiles.CA, SecurityFiles.TOKEN}, {SecurityFiles.TOKEN, SecurityFiles.CA}}) {
            try {
                HoldfastConf.of(good.clone().set(HoldfastConf.PREFIX + each[0], "/x"));
                throw new AssertionError("one alone was taken");
            } catch (IllegalArgumentException right) {
                check(right.getMessage().startsWith(HoldfastConf.PREFIX + each[1] + " is not set"), right.getMessage());
            }
        }
        SparkConf both = good.clone().set(HoldfastConf.PREFIX + SecurityFiles.CA, "/no/ca").set(HoldfastConf.PREFIX + SecurityFiles.TOKEN, "/no/t");
        check(HoldfastConf.of(both).security().given(), "both");
        new HoldfastShuffleManager(both, false).stop();
        try {
            new HoldfastShuffleManager(both, true);
            throw new AssertionError("a driver without its files started");
        } catch (IllegalArgumentException right) {
            check(right.getMessage().equals("spark.holdfast.security.ca /no/ca: there is no such file"), right.getMessage());
        }
        try {
            HoldfastConf.of(both.clone().set(HoldfastConf.PREFIX + SecurityFiles.TOKEN, "hft1.AAAA"));
            throw new AssertionError("a token for a path was taken");
        } catch (IllegalArgumentException right) {
            check(right.getMessage().contains("is the path of a file") && !right.getMessage().contains("AAAA"), right.getMessage());
        }
        String denied = SecurityFiles.reason(new AccessDeniedException("/etc/t"), "ana");
        check(denied.startsWith("permission denied: the user ana may not read it") && !denied.contains("/etc/t"), denied);
        String other = SecurityFiles.reason(new FileSystemException("/etc/t", null, "Not a directory"), "ana");
        check(other.equals("it cannot be read: Not a directory"), other);
    }

    /** Spark's own settings of compression hold, or are refused: none is taken for another one. */
    private static void compression(SparkConf plain) {
        check(HoldfastConf.of(plain).compression().equals(Compression.of(Codec.LZ4, 1)), "Spark's default");
        SparkConf zstd = plain.clone().set("spark.io.compression.codec", "org.apache.spark.io.ZStdCompressionCodec");
        check(HoldfastConf.of(zstd.clone().set("spark.io.compression.zstd.level", "9")).compression().equals(Compression.of(Codec.ZSTD, 9)),
                "the level of zstd");
        SparkConf snappy = plain.clone().set("spark.io.compression.codec", "snappy");
        check(HoldfastConf.of(snappy.clone().set("spark.shuffle.compress", "false")).compression().equals(Compression.NONE), "none wanted");
        check(HoldfastConf.of(snappy.clone().set("spark.holdfast.codec", "lz4")).compression().equals(Compression.of(Codec.LZ4, 1)), "chosen");
        String chosen = "set spark.holdfast.codec to lz4, zstd or none";
        refusal(snappy, "spark.io.compression.codec is snappy", chosen);
        refusal(plain.clone().set("spark.io.compression.codec", "lzf"), "spark.io.compression.codec is lzf", chosen);
        refusal(zstd.clone().set("spark.io.compression.zstd.level", "23"), "spark.io.compression.zstd.level is", "not 23");
        SparkConf push = plain.clone().set("spark.shuffle.push.enabled", "true");
        check(Warnings.switchOff(push).size() == 1 && Warnings.switchOff(push).isEmpty(), "one sentence, once");
        check(push.get("spark.shuffle.push.enabled").equals("false"), "Spark's own pushing is on");
        int before = warnings(zstd).size();
        check(warnings(zstd.set("spark.io.compression.zstd.workers", "2")).size() == before + 1, "workers of zstd");
    }

    /** What may fall back under dynamic allocation, and what is said of Spark's shuffle service: only what it means here. */
    private static void fallback(SparkConf good) {
        SparkConf dynamic = good.clone().set("spark.dynamicAllocation.enabled", "true");
        check(HoldfastConf.of(good).mayFallBack() && HoldfastConf.of(dynamic).mayFallBack(), "Spark tracks shuffles by default");
        SparkConf leave = dynamic.clone().set("spark.dynamicAllocation.shuffleTracking.enabled", "false");
        String reason = HoldfastConf.of(leave).noFallback();
        check(reason.contains("spark.shuffle.service.enabled") && warnings(leave).contains(reason), reason);
        SparkConf timed = dynamic.clone().set("spark.dynamicAllocation.shuffleTracking.timeout", "10min");
        check(!HoldfastConf.of(timed).mayFallBack(), "executors go after a time, tracked or not");
        SparkConf served = leave.clone().set("spark.shuffle.service.enabled", "true");
        check(HoldfastConf.of(served).mayFallBack(), "Spark's service has what fell back");
        check(!aboutService(served), "a service with something to serve");
        served.set("spark.holdfast.fallback", "never");
        check(HoldfastConf.of(served).noFallback().equals("spark.holdfast.fallback is never"), "never is never");
        check(aboutService(served), "a service with nothing to serve");
        check(!warnings(leave.set("spark.holdfast.fallback", "Never")).toString().contains("fallback"), "it was asked for");
    }

    private static boolean aboutService(SparkConf conf) {
        return warnings(conf).stream().anyMatch(each -> each.startsWith("spark.shuffle.service.enabled is true"));
    }

    private static List<String> warnings(SparkConf conf) {
        return Warnings.about(conf, HoldfastConf.of(conf));
    }

    private static void refusal(SparkConf conf, String begins, String contains) {
        try {
            HoldfastConf.of(conf);
        } catch (IllegalArgumentException right) {
            check(right.getMessage().startsWith(begins) && right.getMessage().contains(contains), right.getMessage());
            return;
        }
        throw new AssertionError(begins + ": was taken");
    }

    private static void reads(SparkConf good) {
        check(HoldfastConf.of(good).readSettings().equals(ReadSettings.defaults()), "defaults: " + HoldfastConf.of(good).readSettings());
        SparkConf chosen = good.clone().set("spark.holdfast.fetch.order", "region").set("spark.holdfast.fetch.region", "eu")
                .set("spark.holdfast.fetch.pendingThreshold", "4").set("spark.holdfast.fetch.slowExpire", "5s")
                .set("spark.holdfast.fetch.failureExpire", "2min").set("spark.holdfast.fetch.remoteInterleave", "every")
                .set("spark.holdfast.fetch.speculative", "true").set("spark.holdfast.fetch.speculativeDelay", "300ms");
        ReadSettings wanted =
                new ReadSettings(ReadSettings.OrderBy.REGION, 4, 5_000, 120_000, true, "eu", true, 300);
        check(HoldfastConf.of(chosen).readSettings().equals(wanted), "reads: " + HoldfastConf.of(chosen).readSettings());
        refused(good, "fetch.order", "fastest", "given, health, region");
        refused(good, "fetch.pendingThreshold", "-1", "0 to 1000000");
        refused(good, "fetch.slowExpire", "soon", "is a time");
        refused(good, "fetch.failureExpire", "2d", "ms, not");
        refused(good, "fetch.remoteInterleave", "twice", "once, every");
        refused(good, "fetch.region", "/eu/rack-1", "is the region alone");
        refused(good, "fetch.speculative", "maybe", "true, false");
        refused(good, "fetch.speculativeDelay", "1ms", "10 to 60000 ms");
        refused(good, "fetch.speculativDelay", "1s", "spark.holdfast.fetch.speculativeDelay meant?");
    }

    private static void refused(SparkConf good, String key, String value, String text) {
        try {
            HoldfastConf.of(good.clone().set(HoldfastConf.PREFIX + key, value));
        } catch (IllegalArgumentException right) {
            String said = right.getMessage();
            check(said.startsWith(HoldfastConf.PREFIX + key + " ") && said.contains(text), key + "=" + value + ": " + said);
            return;
        }
        throw new AssertionError(key + "=" + value + " was taken");
    }

    private static void names() {
        check(ApplicationLease.label("job").equals("job"), "a short name");
        check(ApplicationLease.label("x".repeat(300)).equals("x".repeat(255)), "a long name");
        check(ApplicationLease.label("\u00fc".repeat(200)).equals("\u00fc".repeat(127)), "characters of two bytes");
        check(ApplicationLease.label("\ud83d\ude00".repeat(64)).equals("\ud83d\ude00".repeat(63)), "characters of four bytes");
    }

    private static DecodedBatches decoded(BatchSource source) {
        ReadMetrics metrics = new ReadMetrics(new TempShuffleReadMetrics(), null);
        return new DecodedBatches(source, null, BlockCodec.HOLDFAST, metrics, new ByteArrays(1 << 20));
    }

    /** What becomes of the costs of a read in Spark's own counters: all is remote, and parts of milliseconds are not lost. */
    private static void counts() {
        TempShuffleReadMetrics spark = new TempShuffleReadMetrics();
        ReadMetrics ours = new ReadMetrics(spark, null);
        ours.blocks(3);
        ours.received(1_000);
        ours.received(24);
        ours.records(7);
        ours.damaged();
        for (int each = 0; each < 5; each++) {
            ours.waited(700_000);
            ours.streamed(900_000);
        }
        check(spark.remoteBlocksFetched() == 3 && spark.remoteBytesRead() == 1_024 && spark.recordsRead() == 7, "what came");
        check(spark.localBlocksFetched() == 0 && spark.localBytesRead() == 0 && spark.remoteBytesReadToDisk() == 0, "nothing is local");
        check(spark.fetchWaitTime() == 3 && spark.remoteReqsDuration() == 4, "times: " + spark.fetchWaitTime() + ", " + spark.remoteReqsDuration());
        check(spark.corruptMergedBlockChunks() == 1 && spark.mergedFetchFallbackCount() == 0, "damage");
    }

    /** The task ends on one thread while another reads: what it reads into is given back when it has ended, once, and it hears why. */
    private static void closedBesideTheReader() throws Exception {
        HaltedSource source = new HaltedSource();
        DecodedBatches batches = decoded(source);
        Thread reader = new Thread(() -> {
            try {
                check(batches.next(), "the batch that was under way");
            } catch (Exception | Error error) {
                source.wrong = error.toString();
            }
        });
        reader.setDaemon(true);
        reader.start();
        source.reading.await();
        Thread closer = new Thread(batches::close);
        closer.setDaemon(true);
        closer.start();
        closer.join(10_000);
        check(!closer.isAlive(), "the task's end waits for what its reader waits for");
        check(source.closed == 0 && source.stopped == 1, "closed beside the reader, or not told to stop");
        source.go.countDown();
        reader.join();
        check(batches.block().hasRemaining(), "what was read is taken from under its reader");
        batches.close();
        check(source.wrong == null && source.closed == 1, source.wrong + ", closed " + source.closed + " times");
        try {
            batches.next();
        } catch (HoldfastException right) {
            check(right.status() == Status.UNAVAILABLE, right.getMessage());
            return;
        }
        throw new AssertionError("it read on");
    }

    /** A payload that cannot be undone ends the read: whoever swallows that error gets no batch behind it. */
    private static void nothingBehindDamage() throws Exception {
        DamagedSource source = new DamagedSource();
        DecodedBatches batches = decoded(source);
        for (int status : new int[] {Status.CORRUPT, Status.UNAVAILABLE}) {
            try {
                check(!batches.next(), "the batch behind one that is damaged was given");
                throw new AssertionError("damage is taken for the end");
            } catch (HoldfastException right) {
                check(right.status() == status, right.getMessage());
            }
        }
        check(source.closed == 1, "closed " + source.closed + " times");
    }

    /** The buffer of an unusually long record is made, whatever its length, and not kept. */
    private static void encryptedRecords() {
        int longest = Integer.MAX_VALUE - 8;
        check(IoEncryption.capacity(0, longest) == longest, "the longest record");
        check(IoEncryption.capacity(0, 1_800_000_000) >= 1_800_000_000, "a long record");
        check(IoEncryption.capacity(600 << 20, 1_000) < 2_000, "the buffer of a long record is kept");
        check(IoEncryption.capacity(1 << 20, 1_000) == 1 << 20, "the usual buffer is not kept");
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
