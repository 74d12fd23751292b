package org.apache.spark.shuffle.holdfast.control;

import java.util.List;
import org.apache.spark.shuffle.holdfast.wire.ReduceManifest;
import org.apache.spark.shuffle.holdfast.wire.ReduceWinners;
import org.apache.spark.shuffle.holdfast.wire.ShuffleKey;

/** The masters' final word on a generation: which attempts won, what became of every epoch, and the workers that hold them. */
public record Manifest(
        ShuffleKey key, ReduceWinners winners, ReduceManifest epochs, List<WorkerAddress> workers, long raftIndex) {}
