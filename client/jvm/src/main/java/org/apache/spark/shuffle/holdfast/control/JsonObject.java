package org.apache.spark.shuffle.holdfast.control;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.shuffle.holdfast.wire.HoldfastException;
import org.apache.spark.shuffle.holdfast.wire.Limits;
import org.apache.spark.shuffle.holdfast.wire.Status;

/**
 * A message of the control plane as proto3 JSON has it: u64 as strings, bytes as base64, a field that has its default left out.
 * Made and read with Jackson's streams, since loading its mapper alone costs a fresh executor half a second.
 */
final class JsonObject {
    private static final int DEPTH_MAX = 20;
    /** The longest array that a message may carry is 4/3 as long in base64. */
    private static final int TEXT_CHARS_MAX = Limits.CONTROL_MESSAGE_BYTES_MAX / 3 * 4 + 4;
    private static final JsonFactory JSON = JsonFactory.builder()
            .streamReadConstraints(StreamReadConstraints.builder().maxStringLength(TEXT_CHARS_MAX).build())
            .build();

    private final Map<String, Object> fields = new LinkedHashMap<>();

    /** Set a bool, a text, a list of objects or numbers, or an object. */
    JsonObject put(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    JsonObject u32(String name, int value) {
        return put(name, Integer.toUnsignedLong(value));
    }

    JsonObject u64(String name, long value) {
        return put(name, Long.toUnsignedString(value));
    }

    JsonObject bytes(String name, byte[] value) {
        return put(name, Base64.getEncoder().encodeToString(value));
    }

    String text(String name) {
        return fields.get(name) instanceof String text ? text : "";
    }

    boolean bool(String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    int u32(String name) {
        return (int) u64(name);
    }

    long u64(String name) {
        Object value = fields.get(name);
        if (value instanceof Number number) {
            return number.longValue();
        }
        try {
            return value instanceof String text ? Long.parseUnsignedLong(text) : 0;
        } catch (NumberFormatException error) {
            return 0;
        }
    }

    /** A bytes field. BAD_FRAME if it is not base64. */
    byte[] bytes(String name) throws HoldfastException {
        try {
            return Base64.getDecoder().decode(text(name));
        } catch (IllegalArgumentException error) {
            throw new HoldfastException(Status.BAD_FRAME, "field " + name + " of a master's answer is not base64", error);
        }
    }

    /** A field of objects. */
    List<JsonObject> objects(String name) {
        return all(name, JsonObject.class);
    }

    /** A field of texts. */
    List<String> texts(String name) {
        return all(name, String.class);
    }

    /** A field of numbers. */
    List<Integer> u32s(String name) {
        return all(name, Number.class).stream().map(Number::intValue).toList();
    }

    private <T> List<T> all(String name, Class<T> kind) {
        List<T> found = new ArrayList<>();
        if (fields.get(name) instanceof List<?> list) {
            for (Object each : list) {
                if (kind.isInstance(each)) {
                    found.add(kind.cast(each));
                }
            }
        }
        return found;
    }

    byte[] encode() {
        ByteArrayOutputStream out = new ByteArrayOutputStream(512);
        try (JsonGenerator generator = JSON.createGenerator(out)) {
            write(generator, this);
        } catch (IOException error) {
            throw new IllegalStateException("memory does not fail", error);
        }
        return out.toByteArray();
    }

    /** Read an answer. BAD_FRAME if it is no JSON object. */
    static JsonObject decode(byte[] data, int offset, int length) throws HoldfastException {
        try (JsonParser parser = JSON.createParser(data, offset, length)) {
            if (parser.nextToken() == JsonToken.START_OBJECT) {
                return object(parser, 1);
            }
        } catch (JsonProcessingException error) {
            throw new HoldfastException(Status.BAD_FRAME, "no JSON: " + error.getOriginalMessage(), error);
        } catch (IOException error) {
            throw new HoldfastException(Status.BAD_FRAME, "no JSON: " + error.getMessage(), error);
        }
        throw new HoldfastException(Status.BAD_FRAME, "no JSON object");
    }

    private static JsonObject object(JsonParser parser, int depth) throws IOException {
        JsonObject read = new JsonObject();
        while (parser.nextToken() != JsonToken.END_OBJECT) {
            String name = parser.currentName();
            parser.nextToken();
            read.fields.put(name, value(parser, depth));
        }
        return read;
    }

    private static Object value(JsonParser parser, int depth) throws IOException {
        if (depth > DEPTH_MAX) {
            throw new IOException("nested too deeply");
        }
        return switch (parser.currentToken()) {
            case START_OBJECT -> object(parser, depth + 1);
            case START_ARRAY -> {
                List<Object> list = new ArrayList<>();
                while (parser.nextToken() != JsonToken.END_ARRAY) {
                    list.add(value(parser, depth + 1));
                }
                yield list;
            }
            case VALUE_STRING -> parser.getText();
            case VALUE_NUMBER_INT -> parser.getLongValue();
            case VALUE_NUMBER_FLOAT -> parser.getDoubleValue();
            case VALUE_TRUE -> true;
            case VALUE_FALSE -> false;
            default -> "";
        };
    }

    private static void write(JsonGenerator out, Object value) throws IOException {
        if (value instanceof JsonObject object) {
            out.writeStartObject();
            for (Map.Entry<String, Object> field : object.fields.entrySet()) {
                out.writeFieldName(field.getKey());
                write(out, field.getValue());
            }
            out.writeEndObject();
        } else if (value instanceof List<?> list) {
            out.writeStartArray();
            for (Object each : list) {
                write(out, each);
            }
            out.writeEndArray();
        } else if (value instanceof Boolean bool) {
            out.writeBoolean(bool);
        } else if (value instanceof Number number) {
            out.writeNumber(number.longValue());
        } else {
            out.writeString(String.valueOf(value));
        }
    }
}
