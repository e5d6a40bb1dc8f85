#!/usr/bin/env bash
# Package: io.cloudevents:cloudevents-json-jackson and -core 4.0.1 (Maven Central).
# Behaviour: an event with the content type application/json and data of no bytes is written as JSON that ends in
#   "data":} and is none. The format that wrote it refuses to read it. Without data, or with another content type, the
#   member is absent or base 64, and the event comes back.
# The guess one would make: what serialize() returns is JSON, and deserialize() of the same object reads it; an empty
#   body is left out or is "".
# Where it matters: HTTP or message bodies that may be empty are put into events by gateways. The sender ends without an
#   error, and each consumer of the topic ends at this event.
# Output seen: json: ends in "data":} and is refused; text: reads back; no data: reads back
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>io.cloudevents</groupId><artifactId>cloudevents-json-jackson</artifactId><version>4.0.1</version></dependency>
</dependencies></project>
POM
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" >&2 || exit 2
cat > Empty.java <<'JAVA'
import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.jackson.JsonFormat;
import java.net.URI;
import java.nio.charset.StandardCharsets;

public class Empty {
    static CloudEventBuilder event() {
        return CloudEventBuilder.v1().withId("1").withSource(URI.create("/shop")).withType("order.made");
    }

    static String seen(CloudEvent event) {
        JsonFormat format = new JsonFormat();
        byte[] written = format.serialize(event);
        try {
            format.deserialize(written);
            return "reads back";
        } catch (RuntimeException error) {
            String text = new String(written, StandardCharsets.UTF_8);
            return (text.endsWith("\"data\":}") ? "ends in \"data\":} and" : "") + " is refused";
        }
    }

    public static void main(String[] arguments) {
        System.out.println("json: " + seen(event().withData("application/json", new byte[0]).build())
            + "; text: " + seen(event().withData("text/plain", new byte[0]).build())
            + "; no data: " + seen(event().build()));
    }
}
JAVA

java -cp 'lib/*' Empty.java > output 2> errors || { tail -n 3 errors >&2; exit 2; }
cat output
grep -qx 'json: ends in "data":} and is refused; text: reads back; no data: reads back' output || exit 1
