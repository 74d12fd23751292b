package org.apache.spark.shuffle.holdfast;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.StageInfo;

/** Gets every successful stage on the driver and calls {@link DriverShuffles}, which checks whether the shuffle is complete. */
final class StageEnds extends SparkListener {
    private final DriverShuffles driver;

    StageEnds(DriverShuffles driver) {
        this.driver = driver;
    }

    @Override
    public void onStageCompleted(SparkListenerStageCompleted event) {
        StageInfo stage = event.stageInfo();
        if (stage.failureReason().isEmpty() && stage.shuffleDepId().isDefined()) {
            driver.stageEnded((Integer) stage.shuffleDepId().get());
        }
    }
}
