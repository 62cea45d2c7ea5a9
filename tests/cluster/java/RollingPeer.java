import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.nio.charset.StandardCharsets;

/**
 * A writer that asks its controller now and then, with Pravega's own client: controllers, scope, stream.
 * It prints "ready", "ack COUNT MILLISECONDS" for each flush, "call MILLISECONDS" for each request to a controller and
 * "error TEXT"; at a line on its standard input it ends with "end COUNT".
 */
final class RollingPeer {
    private static final int KEYS = 7;

    public static void main(String[] given) throws Exception {
        String ca = System.getenv("pravega_client_tls_cert_path");
        ClientConfig config = ClientConfig.builder().trustStore(ca)
                .controllerURI(URI.create((ca == null ? "tcp://" : "tls://") + given[0])).build();
        String scope = given[1];
        String stream = given[2];
        long count = 0;
        try (StreamManager manager = StreamManager.create(config);
                EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config)) {
            manager.createScope(scope);
            manager.createStream(scope, stream,
                    StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(4)).build());
            try (EventStreamWriter<String> writer = factory.createEventWriter(stream, new UTF8StringSerializer(),
                    EventWriterConfig.builder().build())) {
                say("ready");
                for (int turn = 0; System.in.available() == 0; turn++) {
                    long began = System.nanoTime();
                    try {
                        for (int more = 0; more < KEYS; more++) {
                            writer.writeEvent(String.valueOf(more), more + ":" + turn);
                        }
                        writer.flush();
                        count += KEYS;
                        say("ack " + count + " " + (System.nanoTime() - began) / 1e6);
                    } catch (RuntimeException failure) {
                        say("error " + failure);
                        break;
                    }
                    if (turn % 10 == 0) {
                        began = System.nanoTime();
                        try {
                            manager.createStream(scope, stream + "-" + turn % 50,
                                    StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(1)).build());
                            manager.checkStreamExists(scope, stream);
                            say("call " + (System.nanoTime() - began) / 1e6);
                        } catch (RuntimeException failure) {
                            say("error " + failure);
                        }
                    }
                    Thread.sleep(20);
                }
            }
        }
        say("end " + count);
        Runtime.getRuntime().halt(0);
    }

    private static void say(String line) {
        System.out.write((line + "\n").getBytes(StandardCharsets.UTF_8), 0, line.length() + 1);
        System.out.flush();
    }
}
