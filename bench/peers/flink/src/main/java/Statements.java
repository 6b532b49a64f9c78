import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** Runs statements of Flink SQL, one after the other, and waits for the last: {@code Statements FILE CHECKPOINTS INTERVAL}. */
public final class Statements {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "1");
        configuration.setString("table.local-time-zone", "UTC");
        configuration.setString("state.backend.type", "rocksdb");
        configuration.setString("execution.checkpointing.incremental", "true");
        configuration.setString("execution.checkpointing.dir", Path.of(arguments[1]).toUri().toString());
        configuration.setString("execution.checkpointing.interval", arguments[2]);
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        TableResult last = null;
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\n")) {
            if (!statement.isBlank()) {
                last = tables.executeSql(statement);
            }
        }
        last.await();
        System.exit(0);
    }
}
