package org.apache.spark.shuffle.holdfast.fetch;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The open streams of one read, what each owes, and which is whose rival; no decisions. A file is owed by one stream, and by
 * at most one rival of just that one. Called by {@link Fetch}.
 */
final class FetchStreams {
    /** One of them. */
    static final class Stream {
        final int worker;
        final List<EpochFile> files;
        /** The stream whose files it is asked for as well, -1 once it is the only one that is. */
        private int rivalOf;
        /** Something came of it, and it has no rival any more. */
        boolean came;

        private Stream(int worker, List<EpochFile> files, int rivalOf) {
            this.worker = worker;
            this.files = files;
            this.rivalOf = rivalOf;
        }

        int rivalOf() {
            return rivalOf;
        }
    }

    private final Map<Integer, Stream> streams = new LinkedHashMap<>();
    private int next;

    /** Begins a stream, the rival of another one if {@code rivalOf} is not negative; returns its number. */
    int open(int worker, List<EpochFile> files, int rivalOf) {
        int stream = next++;
        for (EpochFile file : files) {
            if (rivalOf < 0) {
                file.owedBy = stream;
            } else {
                file.rivalBy = stream;
            }
        }
        streams.put(stream, new Stream(worker, files, rivalOf));
        return stream;
    }

    /** The stream, null if it is over. */
    Stream get(int stream) {
        return streams.get(stream);
    }

    /** Forgets a stream and its pending files; its rival continues alone. Returns it, null if it was over. */
    Stream end(int stream) {
        for (EpochFile file : owed(stream)) {
            if (file.owedBy == stream) {
                file.owedBy = file.rivalBy;
            }
            file.rivalBy = -1;
        }
        int rival = rivalOf(stream);
        if (rival >= 0) {
            streams.get(rival).rivalOf = -1;
        }
        return streams.remove(stream);
    }

    /** Whether a stream still owes a file. */
    static boolean isOwedBy(EpochFile file, int stream) {
        return file.owedBy == stream || file.rivalBy == stream;
    }

    /** What a stream still owes. */
    List<EpochFile> owed(int stream) {
        List<EpochFile> owed = new ArrayList<>();
        Stream state = streams.get(stream);
        if (state != null) {
            for (EpochFile file : state.files) {
                if (isOwedBy(file, stream)) {
                    owed.add(file);
                }
            }
        }
        return owed;
    }

    /** The rival of a stream, -1 if it has none. */
    int rivalOf(int stream) {
        for (Map.Entry<Integer, Stream> each : streams.entrySet()) {
            if (each.getValue().rivalOf == stream) {
                return each.getKey();
            }
        }
        return -1;
    }

    /** How many of them are rivals. */
    int rivals() {
        int rivals = 0;
        for (Stream each : streams.values()) {
            rivals += each.rivalOf >= 0 ? 1 : 0;
        }
        return rivals;
    }

    /** Adds the workers of those that are no rivals; returns how many these are. */
    int addWorkers(Set<Integer> workers) {
        int open = 0;
        for (Stream each : streams.values()) {
            if (each.rivalOf < 0) {
                workers.add(each.worker);
                open++;
            }
        }
        return open;
    }

    /** All that are open. */
    Iterable<Integer> numbers() {
        return streams.keySet();
    }

    /** Throws if the books disagree. */
    void check(int streamsMax, int rivalsMax) {
        Set<EpochFile> owed = new HashSet<>();
        streams.forEach((number, state) -> state.files.forEach(file -> {
            if (file.owedBy == number && !owed.add(file)) {
                throw new IllegalStateException(file + " is asked for twice at a time");
            }
            if (file.rivalBy == number && file.owedBy != state.rivalOf) {
                throw new IllegalStateException(file + " is asked of a rival, and not of the stream that is late");
            }
        }));
        for (Stream each : streams.values()) {
            Stream first = each.rivalOf < 0 ? null : streams.get(each.rivalOf);
            if (each.rivalOf >= 0 && (first == null || first.came || first.worker == each.worker)) {
                throw new IllegalStateException("a rival of a stream that has none");
            }
        }
        if (rivals() > rivalsMax || streams.size() - rivals() > streamsMax) {
            throw new IllegalStateException("more streams than allowed");
        }
    }
}
