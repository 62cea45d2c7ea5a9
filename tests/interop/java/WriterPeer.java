import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.byteStream.ByteStreamWriter;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/**
 * A writer with Pravega's own client: endpoint, scope, stream, mode event | large | flush | bytes | transaction.
 * It prints "written" or "failed EXCEPTION", and ends.
 */
final class WriterPeer {
    private static final int SECONDS = 60;

    public static void main(String[] given) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create("tcp://" + given[0])).build();
        Thread end = new Thread(() -> {
            try {
                TimeUnit.SECONDS.sleep(SECONDS);
            } catch (InterruptedException stopped) {
                return;
            }
            say("no answer in " + SECONDS + " s");
            Runtime.getRuntime().halt(1);
        });
        end.setDaemon(true);
        end.start();
        try {
            write(config, given[1], given[2], given[3]);
            say("written");
        } catch (Throwable failure) {
            StringBuilder text = new StringBuilder("failed ").append(failure);
            for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
                text.append(" <- ").append(cause);
            }
            say(text.toString().replace('\n', ' '));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void write(ClientConfig config, String scope, String stream, String mode) throws Exception {
        if (mode.equals("bytes")) {
            try (ByteStreamClientFactory factory = ByteStreamClientFactory.withScope(scope, config);
                    ByteStreamWriter writer = factory.createByteStreamWriter(stream)) {
                writer.write("bytes".getBytes(StandardCharsets.UTF_8));
                writer.flush();
            }
            return;
        }
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config)) {
            EventWriterConfig settings = EventWriterConfig.builder().build();
            if (mode.equals("transaction")) {
                TransactionalEventStreamWriter<String> writer =
                        factory.createTransactionalEventWriter(stream, new UTF8StringSerializer(), settings);
                writer.beginTxn().commit();
                return;
            }
            EventStreamWriter<String> writer = factory.createEventWriter(stream, new UTF8StringSerializer(), settings);
            String event = mode.equals("large") ? "x".repeat(3 * 1024 * 1024) : "event";
            if (mode.equals("flush")) {
                writer.writeEvent("key", event);
                writer.flush();
            } else {
                writer.writeEvent("key", event).get();
            }
        }
    }

    private static void say(String line) {
        System.out.write((line + "\n").getBytes(StandardCharsets.UTF_8), 0, line.length() + 1);
        System.out.flush();
    }
}
