package org.apache.spark.shuffle.holdfast.control;

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.spark.shuffle.holdfast.secure.CredentialsProvider;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Instance;
import org.apache.spark.shuffle.holdfast.wire.LogEvent;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * The driver's lease on its application instance: registered once, renewed by a daemon thread three times per lease, given back by
 * {@link #close}. Shuffles go when no lease is left on the instance, so the thread ends with {@link #close}, or when a master says APPLICATION_GONE, and for
 * nothing else.
 */
public final class ApplicationLease implements AutoCloseable {
    private static final int HOLDER_BYTES = 16;
    /** Of the names of an application and its user. */
    private static final int NAME_BYTES_MAX = 255;
    /** As the masters take it. */
    private static final Pattern WEB_ADDRESS = Pattern.compile("https?://[A-Za-z0-9._~:/?#\\[\\]@!$&'()*+,;=%-]+");
    /** Renewals per lease, so that two may be lost. */
    private static final int RENEWALS = 3;
    private static final long LEASE_MS_MIN = 1_000;
    /** A driver that exits does not wait long for masters that do not answer. */
    private static final int DETACH_MS = 5_000;
    private static final int JOIN_MS = 5_000;

    /**
     * What the masters know of an application.
     *
     * @param user whose quota counts, without security
     * @param sparkId what Spark calls it, for people
     * @param uiUrl where its own pages are, for people; what is no address of http or https is left out
     * @param tags what workers of its shuffles have to have
     */
    public record Description(String name, String user, String sparkId, String uiUrl, List<String> tags) {
        /** The same without Spark. */
        public Description(String name, String user) {
            this(name, user, "", "", List.of());
        }

        private JsonObject json() {
            return new JsonObject().put("name", label(name)).put("user", label(user)).put("sparkId", label(sparkId))
                    .put("uiUrl", isWebAddress(uiUrl) ? uiUrl : "").put("tags", tags);
        }

        /** Others are refused by the masters, and no job is to fail for that. */
        private static boolean isWebAddress(String url) {
            return url.length() <= NAME_BYTES_MAX && WEB_ADDRESS.matcher(url).matches();
        }
    }

    /** What proves to the masters whose application it is; read where it is needed, since it may be replaced. */
    public interface Credential {
        /** Nothing is shown without security. */
        CredentialsProvider read() throws HoldfastException;
    }

    private final Masters masters;
    private final Credential credential;
    private final Instance instance;
    private final byte[] holder;
    private final long leaseMs;
    private final Thread renewal;
    private volatile HoldfastException gone;
    private volatile boolean closed;

    private ApplicationLease(Masters masters, Credential credential, Instance instance, byte[] holder, long leaseMs) {
        this.masters = masters;
        this.credential = credential;
        this.instance = instance;
        this.holder = holder;
        this.leaseMs = leaseMs;
        renewal = new Thread(this::renew, "holdfast-lease");
        renewal.setDaemon(true);
    }

    /** Names are for people to read: as much of one as the masters keep, whole characters. */
    public static String label(String name) {
        int end = name.length();
        while (name.substring(0, end).getBytes(StandardCharsets.UTF_8).length > NAME_BYTES_MAX) {
            end = name.offsetByCodePoints(end, -1);
        }
        return name.substring(0, end);
    }

    /** The same without security. */
    public static ApplicationLease register(Masters masters, String name, String user, long leaseMs) throws HoldfastException {
        return register(masters, CredentialsProvider::new, new Description(name, user), leaseMs, Masters.DEADLINE_MS);
    }

    /**
     * Draw an instance and a holder and register them; {@code leaseMs} 0 is the cluster's setting. Calls of {@code masters} renew this lease from
     * now on, and show the token of the application.
     *
     * @param credential what is shown here and wherever the application's own token came to its end
     * @param withinMs for how long the call is repeated
     */
    public static ApplicationLease register(
            Masters masters, Credential credential, Description application, long leaseMs, int withinMs) throws HoldfastException {
        Instance instance = Instance.random();
        byte[] holder = new byte[HOLDER_BYTES];
        new SecureRandom().nextBytes(holder);
        JsonObject request = application.json().bytes("instance", instance.bytes()).u64("leaseMs", leaseMs).bytes("holder", holder);
        JsonObject reply = asUser(masters, credential, "Shuffles/RegisterApplication", request, withinMs);
        ApplicationLease lease = new ApplicationLease(masters, credential, instance, holder, reply.u64("leaseMs"));
        masters.setHolder(holder);
        lease.renewal.start();
        return lease;
    }

    /** Make a command with the credential; without security the masters cannot distinguish callers. */
    private static JsonObject asUser(Masters masters, Credential credential, String method, JsonObject request, int deadlineMs)
            throws HoldfastException {
        CredentialsProvider user = credential.read();
        if (!user.secure()) {
            return masters.calls().call(method, request, true, deadlineMs);
        }
        try (Masters asked = new Masters(masters.endpoints(), deadlineMs, user)) {
            JsonObject reply = asked.calls().call(method, request, true, deadlineMs);
            masters.credentials().learn(user.with(reply.text("token")));
            return reply;
        } catch (CredentialsProvider.NoTokenException without) {
            throw new HoldfastException(Status.UNAUTHENTICATED,
                    "the masters at " + masters.endpoints() + " gave no token for the application: security is off there", without);
        }
    }

    public Instance instance() {
        return instance;
    }

    /** 16 bytes; for {@link Masters#setHolder} elsewhere. */
    public byte[] holder() {
        return holder.clone();
    }

    /** As granted. */
    public long leaseMs() {
        return leaseMs;
    }

    /** Why the application was dropped (APPLICATION_GONE), or null while it lives. */
    public HoldfastException gone() {
        return gone;
    }

    /** Another call got the error that the application was dropped: the renewal would get it at its next turn. */
    public void over(HoldfastException said) {
        gone = said;
        renewal.interrupt();
    }

    /** Stop renewing and give the lease back. The masters are not waited for long: the lease ends by itself. */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        renewal.interrupt();
        try {
            renewal.join(JOIN_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        try {
            masters.calls().call("Shuffles/Detach", named(), true, DETACH_MS);
        } catch (HoldfastException error) {
            if (error.status() != Status.APPLICATION_GONE) {
                LogEvent.LEASE_RELEASE_FAILED.log("instance", instance, "reason", error);
            }
        }
    }

    private void renew() {
        while (!closed && gone == null) {
            try {
                long third = Math.max(leaseMs, LEASE_MS_MIN) / RENEWALS;
                Thread.sleep(Math.max(LEASE_MS_MIN / RENEWALS, Math.min(third, masters.credentials().untilHalfMs())));
                renewWithin((int) Math.min(third, Masters.DEADLINE_MS));
            } catch (Throwable error) {
                // Without this thread all that is shuffled is dropped when the lease ends: neither anybody's answer nor a mistake of ours may end it.
                failed(error);
            }
        }
    }

    private void failed(Throwable error) {
        try {
            if (error instanceof HoldfastException said && said.fromServer() && Status.endsLease(said.status())) {
                gone = said;
                LogEvent.APPLICATION_GONE.log("instance", instance, "reason", error);
            } else if (error instanceof HoldfastException && !closed) {
                LogEvent.LEASE_RENEWAL_FAILED.log("instance", instance, "reason", error);
            } else if (!closed && gone == null) {
                LogEvent.LEASE_INTERNAL_ERROR.log(error, "instance", instance);
            }
        } catch (RuntimeException | Error unsaid) {
            return; // a log that cannot be written is no reason to end either
        }
    }

    private void renewWithin(int deadlineMs) throws HoldfastException {
        JsonObject reply;
        try {
            reply = masters.calls().call(LeaderCalls.RENEW, named(), false, deadlineMs);
        } catch (HoldfastException error) {
            if (error.status() != Status.TOKEN_EXPIRED) {
                throw error;
            }
            // This machine slept, or its clock is far off: the credential brings a new token, for the same lease.
            asUser(masters, credential, "Shuffles/Attach", named().u64("leaseMs", leaseMs), deadlineMs);
            return;
        }
        masters.credentials().renew(reply.text("token"));
    }

    private JsonObject named() {
        return new JsonObject().bytes("instance", instance.bytes()).bytes("holder", holder);
    }
}
