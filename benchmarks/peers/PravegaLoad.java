import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.impl.ByteArraySerializer;
import java.net.URI;
import java.util.Map;

/** Loads Pravega with its own Java client: mode=create|write|follow|read, endpoint, topic, and what OpenLoop asks for. */
final class PravegaLoad {
    private static final String SCOPE = "bench";

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = OpenLoop.options(arguments);
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create("tcp://" + options.get("endpoint"))).build();
        String stream = options.get("topic");
        switch (options.get("mode")) {
            case "create": create(config, stream, Integer.parseInt(options.get("segments"))); break;
            case "write": write(config, stream, options); break;
            default: read(config, stream, options);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void create(ClientConfig config, String stream, int segments) {
        try (StreamManager manager = StreamManager.create(config)) {
            manager.createScope(SCOPE);
            manager.createStream(SCOPE, stream,
                    StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments)).build());
        }
        System.out.println("{}");
        System.out.flush();
    }

    private static void write(ClientConfig config, String stream, Map<String, String> options) throws Exception {
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(SCOPE, config);
                EventStreamWriter<byte[]> writer = factory.createEventWriter(stream, new ByteArraySerializer(),
                        EventWriterConfig.builder().build())) {
            OpenLoop.write((event, acked) -> writer.writeEvent(event).whenComplete((nothing, error) -> {
                if (error != null) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
                acked.run();
            }), writer::flush, Double.parseDouble(options.get("rate")), Double.parseDouble(options.get("seconds")),
                    Double.parseDouble(options.get("warm")));
        }
    }

    private static void read(ClientConfig config, String stream, Map<String, String> options) {
        boolean follow = options.get("mode").equals("follow");
        int wanted = Integer.parseInt(options.get("events"));
        int skip = Integer.parseInt(options.getOrDefault("skip", "0"));
        String group = "group" + System.nanoTime();
        try (ReaderGroupManager groups = ReaderGroupManager.withScope(SCOPE, config);
                EventStreamClientFactory factory = EventStreamClientFactory.withScope(SCOPE, config)) {
            groups.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(SCOPE, stream))
                    .disableAutomaticCheckpoints().build());
            EventStreamReader<byte[]> reader = factory.createReader("one", group, new ByteArraySerializer(),
                    ReaderConfig.builder().build());
            if (follow) {
                reader.readNextEvent(3000);
            }
            System.out.println("ready");
            long[] ages = new long[follow ? wanted : 0];
            long start = System.nanoTime();
            int count = 0;
            while (count < wanted) {
                EventRead<byte[]> event = reader.readNextEvent(1000);
                if (event.getEvent() != null) {
                    if (follow) {
                        ages[count] = System.nanoTime() - OpenLoop.dueOf(event.getEvent());
                    }
                    count++;
                }
            }
            if (follow) {
                OpenLoop.percentiles(java.util.Arrays.copyOfRange(ages, skip, wanted), 0);
            } else {
                OpenLoop.rate(count, System.nanoTime() - start);
            }
            System.out.flush();
        }
    }
}
