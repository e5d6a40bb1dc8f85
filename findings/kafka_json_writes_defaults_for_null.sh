#!/usr/bin/env bash
# Package: org.apache.kafka:connect-json 4.3.0 (Maven Central), the converter that Debezium and Kafka Connect write JSON
#   by.
# Behaviour: a null in an optional field that has a default is written as the default. A row whose column was set to
#   NULL reads {"stock":7}, and so does a row with 7. replace.null.with.default=false writes null.
# The guess one would make: the default is for those who read, where the field is absent (as in Avro and in SQL, where a
#   NULL that was written stays NULL); what is written has the value that the record has.
# Where it matters: tables that are made from change data. A column with DEFAULT that was set to NULL has the default in
#   the copy, nothing in the message tells the two apart, and the setting has to be known before the first message.
# Output seen: null: 7; absent: 7; 7: 7; null with the setting: null
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.0</version></dependency>
</dependencies></project>
POM
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" >&2 || exit 2
cat > Defaults.java <<'JAVA'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

public class Defaults {
    static final Schema STOCK = SchemaBuilder.int32().optional().defaultValue(7).build();
    static final Schema ROW = SchemaBuilder.struct().field("stock", STOCK).build();

    static String written(Struct row, Map<String, String> more) {
        JsonConverter converter = new JsonConverter();
        var settings = new java.util.HashMap<String, String>(more);
        settings.put("schemas.enable", "false");
        converter.configure(settings, false);
        String text = new String(converter.fromConnectData("rows", ROW, row), StandardCharsets.UTF_8);
        return text.replaceAll("[{}\"]", "").replace("stock:", "");
    }

    public static void main(String[] arguments) {
        System.out.println("null: " + written(new Struct(ROW).put("stock", null), Map.of())
            + "; absent: " + written(new Struct(ROW), Map.of())
            + "; 7: " + written(new Struct(ROW).put("stock", 7), Map.of())
            + "; null with the setting: "
            + written(new Struct(ROW).put("stock", null), Map.of("replace.null.with.default", "false")));
    }
}
JAVA

java -cp 'lib/*' Defaults.java > output 2> errors || { tail -n 3 errors >&2; exit 2; }
cat output
grep -qx 'null: 7; absent: 7; 7: 7; null with the setting: null' output || exit 1
