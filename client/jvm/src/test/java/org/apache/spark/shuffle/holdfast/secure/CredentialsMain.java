package org.apache.spark.shuffle.holdfast.secure;

import static org.apache.spark.shuffle.holdfast.Checks.check;
import static org.apache.spark.shuffle.holdfast.Checks.same;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

/** What a JVM shows, and which of two tokens it shows. Arguments: the CA, and a token that Python made; prints what that says of itself, and "ok". */
public final class CredentialsMain {
    private CredentialsMain() {}

    public static void main(String[] arguments) throws Exception {
        Tokens.Times times = Tokens.of(arguments[1]);
        System.out.println(times.issued() + " " + times.expires() + " " + HexFormat.of().formatHex(times.subject()));
        String ca = Files.readString(Path.of(arguments[0]));
        wrongFiles(ca);
        newest(ca);
        carried(ca);
        idleConnections(ca);
        System.out.println("ok");
    }

    private static void wrongFiles(String ca) {
        for (String[] each : new String[][] {{ca, ""}, {ca, "secret"}, {ca, "hft1.%%%"}, {ca, "hft1.AAAA"}, {"no certificate", TestTls.token(0, 9, "a")}}) {
            try {
                CredentialsProvider made = new CredentialsProvider(each[0], each[1]);
                throw new AssertionError("was taken: " + made);
            } catch (IllegalArgumentException right) {
                check(each[1].isEmpty() || !right.getMessage().contains(each[1]), "it tells what is in the file: " + right.getMessage());
                same(each[0].equals(ca), right instanceof CredentialsProvider.NoTokenException, "which of the two is wrong");
            }
        }
    }

    /** Of one application what ends later, of two what was issued later. */
    private static void newest(String ca) {
        CredentialsProvider runtime = new CredentialsProvider();
        check(!runtime.secure() && runtime.token().isEmpty() && !runtime.isFixed(), "something is shown");
        check(!runtime.outdated(new byte[0]), "nothing is outdated where there is no security");
        runtime.renew(TestTls.token(0, 900, "one"));
        check(!runtime.secure(), "a token came without a CA");
        CredentialsProvider first = new CredentialsProvider(ca, TestTls.token(100, 200, "one"));
        runtime.learn(first);
        same(first.token(), runtime.token(), "the first");
        runtime.learn(new CredentialsProvider(ca, TestTls.token(50, 150, "one")));
        same(first.token(), runtime.token(), "an older one of the same application");
        String later = TestTls.token(120, 220, "one");
        runtime.learn(new CredentialsProvider(ca, later));
        same(later, runtime.token(), "a newer one");
        runtime.renew("");
        runtime.renew(TestTls.token(110, 210, "one"));
        same(later, runtime.token(), "no token, and one that ends before");
        String other = TestTls.token(130, 140, "two");
        runtime.learn(new CredentialsProvider(ca, other));
        same(other, runtime.token(), "that of the next application");
        runtime.learn(new CredentialsProvider(ca, later));
        same(other, runtime.token(), "that of the application before");
        runtime.learn(new CredentialsProvider());
        same(other, runtime.token(), "a handle without security");
    }

    /** The driver gives the token of that moment, and nothing else does: it is not serialisable, and no text has it. */
    private static void carried(String ca) {
        CredentialsProvider driver = new CredentialsProvider();
        same(0, driver.carried().length, "what a driver without security gives");
        driver.learn(new CredentialsProvider(ca, TestTls.token(100, 200, "one")));
        driver.renew(TestTls.token(150, 250, "one"));
        check(!(((Object) driver) instanceof java.io.Serializable), "it can be part of a task");
        CredentialsProvider executor = new CredentialsProvider();
        check(!executor.isFor(bytes("one")), "a token before any came");
        executor.learn(new CredentialsProvider(driver.carried()[0], driver.carried()[1]));
        same(TestTls.token(150, 250, "one"), executor.token(), "what the executor shows");
        check(executor.over(null, "h", 1) != null, "no context was made");
        check(!executor.isFor(bytes("one")), "a token that has ended");
        long now = System.currentTimeMillis() / 1000;
        executor.learn(new CredentialsProvider(ca, TestTls.token(now, now + 100, "one")));
        check(executor.isFor(bytes("one")) && !executor.isFor(bytes("two")), "whose the token is");
        for (Object each : new Object[] {driver, executor, driver.with(TestTls.token(1, 2, "x"))}) {
            check(each.toString().equals("CredentialsProvider(…)"), "its text is " + each);
        }
    }

    private static void idleConnections(String ca) {
        long now = System.currentTimeMillis() / 1000;
        CredentialsProvider runtime = new CredentialsProvider(ca, TestTls.token(now, now + 1000, "one"));
        check(!runtime.outdated(runtime.tokenBytes()), "what is shown now");
        check(!runtime.outdated(bytes(TestTls.token(now - 10, now + 990, "one"))), "one that is young");
        check(runtime.outdated(bytes(TestTls.token(now - 600, now + 400, "one"))), "one that is half over");
        check(runtime.outdated(bytes(TestTls.token(now, now + 1000, "two"))), "one of another application");
        long half = runtime.untilHalfMs();
        check(half > 450_000 && half <= 500_000, "half of its life is over in " + half + " ms");
    }

    private static byte[] bytes(String token) {
        return token.getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    }
}
