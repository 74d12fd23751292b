package org.apache.spark.shuffle.holdfast;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEndpointAddress;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcTimeout;
import org.apache.spark.shuffle.holdfast.data.LongWait;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;
import org.apache.spark.util.RpcUtils;
import scala.concurrent.Await;
import scala.concurrent.Future;
import scala.concurrent.duration.Duration;
import scala.reflect.ClassTag$;

/**
 * Brings an executor the token of the application whose tasks it runs: from the driver, whose lease has the newest one.
 *
 * <p>Rules: the driver is asked where the token here is another application's or has ended, by one task for all of this JVM; otherwise
 * {@link TokenRenewal} keeps it good. Thread-safe. Called by the manager, on executors.
 */
final class ExecutorTokens {
    private final CredentialsProvider credentials;
    private final ReentrantLock asking = new ReentrantLock();

    ExecutorTokens(CredentialsProvider credentials) {
        this.credentials = credentials;
    }

    /**
     * Have a token of this application.
     *
     * @throws HoldfastException UNAVAILABLE if the driver did not give one, or if the task was interrupted as it waited
     */
    void have(Instance application) throws HoldfastException {
        if (credentials.isFor(application.bytes())) {
            return;
        }
        String what = "the token of application " + application;
        try {
            while (!asking.tryLock(LongWait.FIRST_NS, TimeUnit.NANOSECONDS)) {
                LogEvent.TOKEN_WAITING.log("instance", application, "reason", "another task asks the driver for it");
            }
            try {
                if (!credentials.isFor(application.bytes())) {
                    ask(application, what);
                }
            } finally {
                asking.unlock();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new HoldfastException(Status.UNAVAILABLE, "interrupted while asking the driver for " + what);
        }
    }

    private void ask(Instance application, String what) throws HoldfastException, InterruptedException {
        SparkEnv env = SparkEnv.get();
        RpcTimeout patience = RpcUtils.askRpcTimeout(env.conf());
        RpcAddress driver = new RpcAddress(env.conf().get("spark.driver.host"), Integer.parseInt(env.conf().get("spark.driver.port")));
        String place = new RpcEndpointAddress(driver, TokenEndpoint.NAME).toString();
        RpcEndpointRef endpoint = await(env.rpcEnv().asyncSetupEndpointRefByURI(place), patience, what);
        String[] answer = await(endpoint.ask(application.hex(), patience, ClassTag$.MODULE$.apply(String[].class)), patience, what);
        if (answer.length < 2) {
            throw new HoldfastException(Status.UNAVAILABLE, "the driver has no token: its application has ended, or shows none");
        }
        credentials.learn(new CredentialsProvider(answer[0], answer[1]));
    }

    private static <T> T await(Future<T> future, RpcTimeout patience, String what) throws HoldfastException, InterruptedException {
        long end = System.nanoTime() + patience.duration().toNanos();
        while (!future.isCompleted()) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                throw new HoldfastException(Status.UNAVAILABLE, "the driver did not give " + what + " within " + patience.duration()
                        + " (" + patience.timeoutProp() + ")");
            }
            try {
                Await.ready(future, Duration.create(Math.min(left, LongWait.FIRST_NS), TimeUnit.NANOSECONDS));
            } catch (TimeoutException slow) {
                LogEvent.TOKEN_WAITING.log("what", what, "reason", "the driver has not answered");
            }
        }
        try {
            return future.value().get().get();
        } catch (Exception error) {
            throw new HoldfastException(Status.UNAVAILABLE, "the driver did not give " + what + ": " + error.getMessage(), error);
        }
    }
}
