package org.apache.spark.shuffle.holdfast.control;

import static org.apache.spark.shuffle.holdfast.Checks.check;
import static org.apache.spark.shuffle.holdfast.Checks.refused;
import static org.apache.spark.shuffle.holdfast.Checks.same;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Status;

/** Messages of the control plane go to JSON and back: the largest numbers, long arrays, what is left out, and what is none. */
public final class JsonChecks {
    private JsonChecks() {}

    public static void main(String[] args) throws Exception {
        byte[] large = new byte[30 * Limits.MIB];
        new Random(1).nextBytes(large);
        JsonObject made = new JsonObject().u32("u32", -1).u64("u64", -1).bytes("large", large).put("yes", true).put("no", false)
                .put("text", "Zürich \"quoted\" \n").put("list", List.of(new JsonObject().u32("n", 1), new JsonObject()));
        JsonObject read = decode(made.encode());
        same(-1, read.u32("u32"), "the largest u32");
        same(-1L, read.u64("u64"), "the largest u64");
        check(Arrays.equals(large, read.bytes("large")), "30 MiB come back");
        check(read.bool("yes") && !read.bool("no") && !read.bool("missing"), "bools");
        same("Zürich \"quoted\" \n", read.text("text"), "text");
        same(2, read.objects("list").size(), "objects");
        same(0L + read.objects("list").get(1).u32("n"), 0L, "a field left out is 0");
        check(read.text("missing").isEmpty() && read.objects("missing").isEmpty() && read.bytes("missing").length == 0, "left out");

        JsonObject reported = decode("{\"a\": 4294967295, \"b\": \"18446744073709551615\", \"c\": null, \"d\": [[1]], \"e\": 1.5}");
        same(0xFFFF_FFFF, reported.u32("a"), "a u32 as JSON has it");
        same(-1L, reported.u64("b"), "a u64 as JSON has it");
        same("", reported.text("c"), "null");
        for (String wrong : List.of("", "[]", "{", "{\"a\": ", "{\"a\" 1}", "<html>", "{\"a\": 99999999999999999999}",
                "{\"a\": ".repeat(30) + "1" + "}".repeat(30))) {
            refused(Status.BAD_FRAME, wrong, () -> decode(wrong));
        }
        refused(Status.BAD_FRAME, "no base64", () -> decode("{\"a\": \"&&\"}").bytes("a"));
        System.out.println("checked");
    }

    private static JsonObject decode(String text) throws HoldfastException {
        return decode(text.getBytes(StandardCharsets.UTF_8));
    }

    private static JsonObject decode(byte[] bytes) throws HoldfastException {
        return JsonObject.decode(bytes, 0, bytes.length);
    }
}
