import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables in memory that Spark can MERGE into, which those of its own formats cannot; each change writes a table to
 * `DIRECTORY/NAME.tsv`, a value a line field as its text and null as \N, so that other processes can compare it.
 */
public class RowLevelCatalog implements TableCatalog, SupportsNamespaces {
    private static final Map<Identifier, MemoryTable> TABLES = new ConcurrentHashMap<>();
    private String name;
    private Path directory;

    @Override
    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        directory = Path.of(options.get("directory"));
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Identifier[] listTables(String[] namespace) {
        return TABLES.keySet().toArray(new Identifier[0]);
    }

    @Override
    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        MemoryTable table = TABLES.get(identifier);
        if (table == null) {
            throw new NoSuchTableException(identifier);
        }
        return table;
    }

    @Override
    public Table createTable(Identifier identifier, TableInfo info) {
        TABLES.put(identifier, new MemoryTable(directory, identifier.name(), info.columns(), info.properties()));
        return TABLES.get(identifier);
    }

    @Override
    public Table alterTable(Identifier identifier, TableChange... changes) throws NoSuchTableException {
        MemoryTable old = (MemoryTable) loadTable(identifier);
        Map<String, String> properties =
                CatalogV2Util.applyPropertiesChanges(old.properties(), scala.jdk.javaapi.CollectionConverters.asScala(List.of(changes)).toSeq());
        if (!Set.of(changes).stream().allMatch(change -> change instanceof TableChange.SetProperty || change instanceof TableChange.RemoveProperty)) {
            throw new UnsupportedOperationException("columns stay as they are");
        }
        MemoryTable table = new MemoryTable(directory, identifier.name(), old.columns(), properties);
        table.replace(old.rows);
        TABLES.put(identifier, table);
        return table;
    }

    @Override
    public boolean dropTable(Identifier identifier) {
        return TABLES.remove(identifier) != null;
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException();
    }

    @Override
    public String[][] listNamespaces() {
        return new String[][] {};
    }

    @Override
    public String[][] listNamespaces(String[] namespace) {
        return new String[][] {};
    }

    @Override
    public boolean namespaceExists(String[] namespace) {
        return true;
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) {
        return Map.of();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {}

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {}

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        return false;
    }

    /** Rows of one table; an operation reads all of them and writes all anew. */
    private static class MemoryTable implements SupportsRead, SupportsWrite, SupportsRowLevelOperations {
        private final Path file;
        private final String name;
        private final Column[] columns;
        private final Map<String, String> properties;
        private volatile List<InternalRow> rows = List.of();

        MemoryTable(Path directory, String name, Column[] columns, Map<String, String> properties) {
            this.file = directory.resolve(name + ".tsv");
            this.name = name;
            this.columns = columns;
            this.properties = properties;
        }

        void replace(List<InternalRow> written) {
            rows = List.copyOf(written);
            StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
            List<String> lines = new ArrayList<>();
            for (InternalRow row : rows) {
                List<String> values = new ArrayList<>();
                for (int index = 0; index < columns.length; index++) {
                    Object value = row.get(index, schema.fields()[index].dataType());
                    values.add(value == null ? "\\N" : value.toString().replace("\\", "\\\\").replace("\n", "\\n"));
                }
                lines.add(String.join("\t", values));
            }
            try {
                Files.createDirectories(file.getParent());
                Files.write(file, lines);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public Column[] columns() {
            return columns;
        }

        @Override
        public Map<String, String> properties() {
            return properties;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
            return () -> new AllRows(schema, rows);
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new Writes(written -> {
                List<InternalRow> all = new ArrayList<>(rows);
                all.addAll(written);
                replace(all);
            });
        }

        @Override
        public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
            MemoryTable table = this;
            RowLevelOperation operation = new RowLevelOperation() {
                @Override
                public Command command() {
                    return info.command();
                }

                @Override
                public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
                    return table.newScanBuilder(options);
                }

                @Override
                public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
                    return new Writes(table::replace);
                }
            };
            return () -> operation;
        }
    }

    private record Rows(List<InternalRow> rows) implements InputPartition, WriterCommitMessage {}

    private record AllRows(StructType readSchema, List<InternalRow> rows) implements Scan, Batch {
        @Override
        public Batch toBatch() {
            return this;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return new InputPartition[] {new Rows(new ArrayList<>(rows))};
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Reads();
        }
    }

    private static class Reads implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            var rows = ((Rows) partition).rows().iterator();
            return new PartitionReader<>() {
                private InternalRow row;

                @Override
                public boolean next() {
                    row = rows.hasNext() ? rows.next() : null;
                    return row != null;
                }

                @Override
                public InternalRow get() {
                    return row;
                }

                @Override
                public void close() {}
            };
        }
    }

    private interface Commit {
        void rows(List<InternalRow> rows);
    }

    private record Writes(Commit commit) implements WriteBuilder, Write, BatchWrite {
        @Override
        public Write build() {
            return this;
        }

        @Override
        public BatchWrite toBatch() {
            return this;
        }

        @Override
        public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
            return new Writers();
        }

        @Override
        public void commit(WriterCommitMessage[] messages) {
            List<InternalRow> all = new ArrayList<>();
            for (WriterCommitMessage message : messages) {
                all.addAll(((Rows) message).rows());
            }
            commit.rows(all);
        }

        @Override
        public void abort(WriterCommitMessage[] messages) {}
    }

    private static class Writers implements DataWriterFactory {
        @Override
        public DataWriter<InternalRow> createWriter(int partition, long task) {
            List<InternalRow> rows = new ArrayList<>();
            return new DataWriter<>() {
                @Override
                public void write(InternalRow row) {
                    rows.add(row.copy());
                }

                @Override
                public WriterCommitMessage commit() {
                    return new Rows(rows);
                }

                @Override
                public void abort() {}

                @Override
                public void close() {}
            };
        }
    }
}
