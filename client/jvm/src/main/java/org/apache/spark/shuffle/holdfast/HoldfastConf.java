package org.apache.spark.shuffle.holdfast;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.commons.text.similarity.LevenshteinDistance;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.holdfast.control.Masters;
import org.apache.spark.shuffle.holdfast.fetch.FetchLimits;
import org.apache.spark.shuffle.holdfast.fetch.ReadSettings;
import org.apache.spark.shuffle.holdfast.push.Compression;
import org.apache.spark.shuffle.holdfast.push.PushLimits;
import org.apache.spark.shuffle.holdfast.wire.Ack;
import org.apache.spark.shuffle.holdfast.wire.Codec;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import scala.Tuple2;

/**
 * The settings under {@code spark.holdfast.}, read once and checked; each has its default here and nowhere else.
 *
 * <p>A wrong value is an IllegalArgumentException whose sentence names the key. Read by the manager, on the driver and on executors
 * alike: Spark hands the driver's settings to its executors. docs/use/spark.md explains them.
 *
 * @param endpoints the masters' HTTP addresses, "host:port,host:port"
 * @param security the credentials of this client, and the CA of the masters
 * @param clusterId which cluster it has to be; empty: whichever answers
 * @param copies how many copies of the data are wanted
 * @param strictCopies whether a shuffle that cannot have all its copies is refused
 * @param ack acknowledgement level, see {@link Ack}
 * @param ackCopies how many copies hold a batch before it is acknowledged
 * @param noFallback why Spark's own shuffle does not serve where Holdfast cannot be reached at registration; empty: it does
 * @param pushBuffer how much a writer gathers for a partition before it is pushed as a batch
 * @param compression how batches are compressed
 * @param rowPlanes whether rows of SQL are turned into planes before
 * @param push what a writer may hold
 * @param fetch what a reader may have on its way
 * @param reads which copy a reader asks first
 * @param tags what workers have to have to be given anything
 * @param leaseMs how long shuffles outlive a driver that was killed; 0: the cluster's setting
 * @param requestMs for how long calls to the masters are repeated
 * @param registerMs the same for registering, after which a shuffle falls back or fails
 * @param idle direct memory that may lie idle for the next task
 */
public record HoldfastConf(
        String endpoints,
        SecurityFiles security,
        String clusterId,
        int copies,
        boolean strictCopies,
        int ack,
        int ackCopies,
        String noFallback,
        int pushBuffer,
        Compression compression,
        boolean rowPlanes,
        PushLimits push,
        FetchLimits fetch,
        ReadSettings readSettings,
        List<String> tags,
        long leaseMs,
        int requestMs,
        int registerMs,
        long idle) {
    /** What every key begins with. */
    public static final String PREFIX = "spark.holdfast.";

    /** Names the region of a JVM whose settings do not. */
    private static final String REGION_VARIABLE = "HOLDFAST_REGION";
    private static final int NAME_BYTES_MAX = 255;
    private static final Pattern TAG = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,62}");
    private static final int ZSTD_LEVEL_MIN = -131_072;
    private static final int ZSTD_LEVEL_MAX = 22;
    private static final long KIB = 1024;
    private static final long MIB = 1024 * KIB;

    /** Reads and checks the settings. */
    public static HoldfastConf of(SparkConf conf) {
        Reader read = new Reader(conf, new TreeSet<>());
        TaskShare share = TaskShare.of(conf, read.part("memory.overheadShare", 0.4));
        int copies = (int) read.number("replication", 1, 1, Limits.COPIES_MAX);
        HoldfastConf found = new HoldfastConf(
                read.endpoints(),
                new SecurityFiles(read.text(SecurityFiles.CA), read.text(SecurityFiles.TOKEN)),
                read.text("cluster.id"),
                copies,
                read.truth("replication.strict", false),
                Ack.of(read.word("ack", "written", "memory", "written", "synced")),
                (int) read.number("ack.copies", copies, 1, copies),
                read.noFallback(),
                (int) read.bytes("push.buffer", 64 * KIB, 4 * KIB, 4 * MIB),
                read.compression(),
                read.truth("codec.rowPlanes", true),
                new PushLimits(
                        (int) read.bytes("push.frame", share.frame(), PushLimits.FRAME_BYTES_MIN, 4 * MIB),
                        read.bytes("push.open", share.open(), TaskShare.LEAST, 1024 * MIB),
                        read.bytes("push.inFlight", share.held(), TaskShare.LEAST, 1024 * MIB),
                        read.time("no_room.grace", PushLimits.USUAL.noRoomMs() + "ms", 0, 86_400_000L),
                        read.time("push.memoryGrace", PushLimits.USUAL.memoryMs() + "ms", 0, 86_400_000L)),
                new FetchLimits(
                        read.bytes("fetch.inFlight", share.fetch(), TaskShare.LEAST, 1024 * MIB),
                        (int) read.number("fetch.workers", 8, 1, 64),
                        read.time("fetch.returnGrace", "30s", 0, 3_600_000),
                        read.time("fetch.reachGrace", "2min", 1_000, 3_600_000)),
                read.readSettings(),
                read.tags(),
                read.isSet("lease") ? read.time("lease", "", 1_000, 7 * 86_400_000L) : 0,
                (int) read.time("request.timeout", "30s", 1_000, 600_000),
                (int) read.time("register.timeout", "8s", 1_000, 600_000),
                share.idle());
        read.refuseOthers();
        return found;
    }

    /** Whether Spark's own shuffle is used where Holdfast cannot be reached at registration. */
    public boolean mayFallBack() {
        return noFallback.isEmpty();
    }

    /** @param known the keys that were asked for, without the prefix */
    private record Reader(SparkConf conf, Set<String> known) {
        /** An unknown key is a typing error: its setting would silently not apply. */
        void refuseOthers() {
            for (Tuple2<String, String> each : conf.getAllWithPrefix(PREFIX)) {
                if (!known.contains(each._1())) {
                    LevenshteinDistance distance = LevenshteinDistance.getDefaultInstance();
                    String nearest = Collections.min(known, Comparator.comparing(key -> distance.apply(key, each._1())));
                    throw wrong(each._1(), "is no setting; is " + PREFIX + nearest + " meant?");
                }
            }
        }

        String endpoints() {
            String found = text("master.endpoints");
            if (found.isEmpty()) {
                throw wrong("master.endpoints", "is not set: give it the masters' HTTP addresses, host:port,host:port");
            }
            try {
                Masters.parse(found);
            } catch (IllegalArgumentException error) {
                throw wrong("master.endpoints", "is wrong: " + error.getMessage());
            }
            return found;
        }

        boolean isSet(String key) {
            known.add(key);
            return conf.contains(PREFIX + key);
        }

        String text(String key) {
            known.add(key);
            return conf.get(PREFIX + key, "").trim();
        }

        /**
         * Spark's allocation asks once, as it starts, whether storage is reliable, and is told so; what falls back later is safe from it
         * where Spark's service has it, or where executors are kept for what they hold.
         */
        String noFallback() {
            if (word("fallback", "auto", "auto", "never").equals("never")) {
                return PREFIX + "fallback is never";
            }
            boolean tracked = conf.getBoolean("spark.dynamicAllocation.shuffleTracking.enabled", true) // as Spark's default is
                    && !conf.contains("spark.dynamicAllocation.shuffleTracking.timeout"); // after which executors go all the same
            boolean kept = tracked || conf.getBoolean("spark.shuffle.service.enabled", false);
            if (kept || !conf.getBoolean("spark.dynamicAllocation.enabled", false)) {
                return "";
            }
            return PREFIX + "fallback is never with dynamic allocation, which would remove executors with what fell back, unless"
                    + " spark.shuffle.service.enabled or, without a timeout, spark.dynamicAllocation.shuffleTracking.enabled is true";
        }

        /** Spark's own choice, unless {@code codec} says otherwise. */
        Compression compression() {
            return switch (word("codec", isSet("codec") ? "" : sparksCodec(), "none", "lz4", "zstd")) {
                case "none" -> Compression.NONE;
                case "zstd" -> Compression.of(Codec.ZSTD, zstdLevel());
                default -> Compression.of(Codec.LZ4, Codec.USUAL_LEVEL);
            };
        }

        /** What Holdfast has of Spark's codecs; data under another one than was asked for would be silently otherwise. */
        private String sparksCodec() {
            String spark = conf.get("spark.io.compression.codec", "lz4").trim();
            if (!conf.getBoolean("spark.shuffle.compress", true)) {
                return "none";
            }
            return switch (spark.toLowerCase(java.util.Locale.ROOT)) {
                case "lz4", "org.apache.spark.io.lz4compressioncodec" -> "lz4";
                case "zstd", "org.apache.spark.io.zstdcompressioncodec" -> "zstd";
                default -> throw new IllegalArgumentException("spark.io.compression.codec is " + spark
                        + ", which Holdfast does not have: set " + PREFIX + "codec to lz4, zstd or none for shuffles; "
                        + spark + " then holds for all else that Spark compresses");
            };
        }

        private int zstdLevel() {
            int level = conf.getInt("spark.io.compression.zstd.level", Codec.USUAL_LEVEL);
            if (level < ZSTD_LEVEL_MIN || level > ZSTD_LEVEL_MAX) {
                throw new IllegalArgumentException("spark.io.compression.zstd.level is " + ZSTD_LEVEL_MIN + " to " + ZSTD_LEVEL_MAX
                        + ", not " + level);
            }
            return level;
        }

        /** The region of this JVM: executors share the driver's settings, so each may say it by a variable. */
        String region() {
            String key = "fetch.region";
            String found = text(key);
            String variable = System.getenv(REGION_VARIABLE);
            boolean fromVariable = found.isEmpty() && variable != null;
            found = fromVariable ? variable.trim() : found;
            if (found.indexOf('/') >= 0 || found.getBytes(StandardCharsets.UTF_8).length > NAME_BYTES_MAX) {
                String reason = "is the region alone, eu-west of a place /eu-west/rack-7, at most " + NAME_BYTES_MAX
                        + " bytes, not \"" + found + "\"";
                throw fromVariable ? new IllegalArgumentException(REGION_VARIABLE + " " + reason) : wrong(key, reason);
            }
            return found;
        }

        /** Checked here as the masters do, for an error that names the key. */
        List<String> tags() {
            List<String> found = Arrays.stream(text("tags").split(",")).map(String::trim).filter(each -> !each.isEmpty()).toList();
            for (String each : found) {
                if (!TAG.matcher(each).matches()) {
                    throw wrong("tags", "are separated by commas, each of 1 to 63 letters, digits, dots, underscores and dashes, no sign of"
                            + " these first, not \"" + each + "\"");
                }
            }
            within("tags", found.size(), 0, Limits.TAGS_MAX, " of them");
            return found;
        }

        ReadSettings readSettings() {
            String order = word("fetch.order", "health", "given", "health", "region");
            return new ReadSettings(
                    ReadSettings.OrderBy.valueOf(order.toUpperCase(java.util.Locale.ROOT)),
                    (int) number("fetch.pendingThreshold", 0, 0, 1_000_000),
                    time("fetch.slowExpire", "60s", 0, 86_400_000L),
                    time("fetch.failureExpire", "60s", 0, 86_400_000L),
                    word("fetch.remoteInterleave", "once", "once", "every").equals("every"),
                    region(),
                    truth("fetch.speculative", false),
                    isSet("fetch.speculativeDelay") ? time("fetch.speculativeDelay", "", 10, 60_000) : 0);
        }

        String word(String key, String usual, String... words) {
            known.add(key);
            String found = conf.get(PREFIX + key, usual).trim().toLowerCase(java.util.Locale.ROOT);
            for (String each : words) {
                if (each.equals(found)) {
                    return found;
                }
            }
            throw wrong(key, "is " + String.join(", ", words) + ", not \"" + found + "\"");
        }

        boolean truth(String key, boolean usual) {
            return word(key, Boolean.toString(usual), "true", "false").equals("true");
        }

        long number(String key, long usual, long least, long most) {
            known.add(key);
            String found = conf.get(PREFIX + key, Long.toString(usual)).trim();
            try {
                return within(key, Long.parseLong(found), least, most, "");
            } catch (NumberFormatException error) {
                throw wrong(key, "is a whole number, not \"" + found + "\"");
            }
        }

        /** A part of a whole. */
        double part(String key, double usual) {
            known.add(key);
            String found = conf.get(PREFIX + key, Double.toString(usual)).trim();
            try {
                double part = Double.parseDouble(found);
                if (part > 0 && part <= 1) {
                    return part;
                }
            } catch (NumberFormatException error) {
                throw wrong(key, "is a number above 0 and up to 1, not \"" + found + "\"");
            }
            throw wrong(key, "is above 0 and up to 1, not " + found);
        }

        long bytes(String key, long usual, long least, long most) {
            known.add(key);
            long found;
            try {
                found = conf.getSizeAsBytes(PREFIX + key, usual + "b");
            } catch (IllegalArgumentException error) {
                throw wrong(key, "is a size as 64k or 48m, not \"" + conf.get(PREFIX + key) + "\"");
            }
            return within(key, found, least, most, " bytes");
        }

        long time(String key, String usual, long least, long most) {
            known.add(key);
            long found;
            try {
                found = conf.getTimeAsMs(PREFIX + key, usual);
            } catch (IllegalArgumentException error) {
                throw wrong(key, "is a time as 30s or 10min, not \"" + conf.get(PREFIX + key) + "\"");
            }
            return within(key, found, least, most, " ms");
        }

        private long within(String key, long found, long least, long most, String unit) {
            if (found < least || found > most) {
                throw wrong(key, "is " + least + " to " + most + unit + ", not " + found);
            }
            return found;
        }

        private static IllegalArgumentException wrong(String key, String reason) {
            return new IllegalArgumentException(PREFIX + key + " " + reason);
        }
    }
}
