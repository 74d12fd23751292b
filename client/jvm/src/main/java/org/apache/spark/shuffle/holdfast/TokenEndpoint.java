package org.apache.spark.shuffle.holdfast;

import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import scala.Function1;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Where executors get the application's token: an endpoint of the driver's in Spark's own RPC, as its trackers have one.
 *
 * <p>Rules: so the token is in no handle, and with that in no task, in no setting and in no event. The messages are of classes that every JVM has from its start,
 * since Spark 4 fetches the plug-in's jar later than it opens its RPC: an instance in hex is asked with, CA and token are answered, or nothing
 * where the driver shows nothing. Whoever may ask is Spark's business ({@code spark.authenticate}), as with tasks. Made by the manager, on the driver.
 */
record TokenEndpoint(RpcEnv rpcEnv, CredentialsProvider credentials) implements RpcEndpoint {
    static final String NAME = "holdfast-token";

    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
        return new AbstractPartialFunction<>() {
            @Override
            public boolean isDefinedAt(Object asked) {
                return asked instanceof String;
            }

            @Override
            @SuppressWarnings("unchecked") // in Scala the answer's type is one above BoxedUnit
            public <A, B> B applyOrElse(A asked, Function1<A, B> otherwise) {
                if (!isDefinedAt(asked)) {
                    return otherwise.apply(asked);
                }
                context.reply(credentials.carried());
                return (B) BoxedUnit.UNIT;
            }
        };
    }
}
