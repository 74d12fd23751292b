package org.apache.spark.shuffle.holdfast;

import java.lang.reflect.Field;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.sql.execution.metric.SQLMetric;

/**
 * Looks into the serialiser of SQL's shuffles, whose rows need no serialising.
 *
 * <p>Rules: asks by name and by reflection, because Spark keeps both fields to itself; a serialiser that looks otherwise than known is treated as
 * any other, which is slower and right.
 */
final class RowSerializers {
    private static final String NAME = "org.apache.spark.sql.execution.UnsafeRowSerializer";

    private RowSerializers() {}

    /** Its properties. {@code dataSize} is SQL's metric of bytes, null without one. */
    record Known(int fields, SQLMetric dataSize) {}

    /** Null if this is not the serialiser of rows. */
    static Known of(Serializer serializer) {
        if (!serializer.getClass().getName().equals(NAME)) {
            return null;
        }
        try {
            return new Known((Integer) get(serializer, "numFields"), (SQLMetric) get(serializer, "dataSize"));
        } catch (ReflectiveOperationException | ClassCastException error) {
            return null;
        }
    }

    private static Object get(Serializer serializer, String name) throws ReflectiveOperationException {
        Field field = serializer.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(serializer);
    }
}
