import com.google.common.collect.ImmutableMap;
import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Serializer;
import io.pravega.client.stream.Stream;
import io.pravega.schemaregistry.client.SchemaRegistryClient;
import io.pravega.schemaregistry.client.SchemaRegistryClientConfig;
import io.pravega.schemaregistry.client.SchemaRegistryClientFactory;
import io.pravega.schemaregistry.contract.data.CodecType;
import io.pravega.schemaregistry.contract.data.Compatibility;
import io.pravega.schemaregistry.contract.data.EncodingId;
import io.pravega.schemaregistry.contract.data.EncodingInfo;
import io.pravega.schemaregistry.contract.data.GroupProperties;
import io.pravega.schemaregistry.contract.data.SchemaInfo;
import io.pravega.schemaregistry.contract.data.SerializationFormat;
import io.pravega.schemaregistry.contract.data.VersionInfo;
import io.pravega.schemaregistry.serializer.avro.schemas.AvroSchema;
import io.pravega.schemaregistry.serializer.json.schemas.JSONSchema;
import io.pravega.schemaregistry.serializer.protobuf.schemas.ProtobufSchema;
import io.pravega.schemaregistry.serializer.shared.codec.Codecs;
import io.pravega.schemaregistry.serializer.shared.impl.SerializerConfig;
import io.pravega.schemaregistry.serializers.SerializerFactory;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;

/**
 * Programs on the Java client of Pravega's schema registry, and on its serializers:
 *
 *   REGISTRY NAMESPACE client GROUP                       call everything, and print "CALL: OUTCOME" for each
 *   REGISTRY NAMESPACE write ENDPOINT SCOPE COUNT STREAM:FORMAT:CODEC...
 *   REGISTRY NAMESPACE read ENDPOINT SCOPE COUNT STREAM:FORMAT...        and print "STREAM FORMAT EVENT" for each
 *
 * FORMAT: avro, json, protobuf or, to read, any (by the format of each event) and wider (Avro with one field more).
 * CODEC: none, gzip or snappy.  The group of a stream is SCOPE.STREAM.  An empty NAMESPACE is the default one.
 * It prints "done" at the end.  The user and the CA come from the variables of Pravega's clients.
 */
final class RegistryPeer {
    /** An event: its JSON form is what the JSON serializer writes. */
    public static final class Person {
        public String name;
        public int age;
    }

    private static final String CA = System.getenv("pravega_client_tls_cert_path");
    private static final Schema AVRO = SchemaBuilder.record("Person").namespace("tests.registry").fields()
            .requiredString("name").requiredInt("age").endRecord();
    private static final Schema AVRO_MORE = SchemaBuilder.record("Person").namespace("tests.registry").fields()
            .requiredString("name").requiredInt("age").name("city").type().stringType().stringDefault("").endRecord();
    private static final Schema AVRO_OTHER = SchemaBuilder.record("Person").namespace("tests.registry").fields()
            .requiredString("name").requiredInt("age").requiredLong("height").endRecord();
    private static final String JSON = "{\"type\": \"object\", \"title\": \"Person\","
            + " \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": {\"type\": \"integer\"}}}";
    private static final FileDescriptorProto PROTOBUF = FileDescriptorProto.newBuilder().setName("person.proto")
            .setPackage("tests.registry").setSyntax("proto3")
            .addMessageType(DescriptorProto.newBuilder().setName("Person")
                    .addField(field("name", 1, FieldDescriptorProto.Type.TYPE_STRING))
                    .addField(field("age", 2, FieldDescriptorProto.Type.TYPE_INT32))).build();

    private static FieldDescriptorProto field(String name, int number, FieldDescriptorProto.Type type) {
        return FieldDescriptorProto.newBuilder().setName(name).setNumber(number).setType(type)
                .setLabel(FieldDescriptorProto.Label.LABEL_OPTIONAL).build();
    }

    public static void main(String[] given) throws Exception {
        try {
            SchemaRegistryClientConfig registry = registry(given[0]);
            String namespace = given[1].isEmpty() ? null : given[1];
            if (given[2].equals("client")) {
                callAll(SchemaRegistryClientFactory.withNamespace(namespace, registry), given[3]);
            } else if (given[2].equals("write")) {
                for (int i = 6; i < given.length; i++) {
                    write(registry, namespace, given[3], given[4], Integer.parseInt(given[5]), given[i].split(":"));
                }
            } else {
                for (int i = 6; i < given.length; i++) {
                    read(registry, namespace, given[3], given[4], Integer.parseInt(given[5]), given[i].split(":"));
                }
            }
            say("done");
        } catch (Throwable failure) {
            failure.printStackTrace();
            say("failed " + failure);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static SchemaRegistryClientConfig registry(String uri) {
        SchemaRegistryClientConfig.SchemaRegistryClientConfigBuilder builder =
                SchemaRegistryClientConfig.builder().schemaRegistryUri(URI.create(uri));
        if (CA != null) {
            builder.certificate(CA).authentication(
                    System.getenv("pravega_client_auth_method"), System.getenv("pravega_client_auth_token"));
        }
        return builder.build();
    }

    // -- the client ---------------------------------------------------------------------------------

    private static void callAll(SchemaRegistryClient client, String group) throws Exception {
        GroupProperties avro = new GroupProperties(SerializationFormat.Avro, Compatibility.backward(), true,
                ImmutableMap.of("owner", "java"));
        tell("addGroup", () -> client.addGroup(group, avro));
        tell("addGroup again", () -> client.addGroup(group, avro));
        tell("addGroup Json full", () -> client.addGroup(group + "-json",
                new GroupProperties(SerializationFormat.Json, Compatibility.full(), true)));
        tell("getGroupProperties", () -> properties(client.getGroupProperties(group)));
        tell("getGroupProperties absent", () -> properties(client.getGroupProperties("absent")));
        SchemaInfo first = AvroSchema.of(AVRO).getSchemaInfo();
        VersionInfo version = client.addSchema(group, first);
        tell("addSchema", () -> version);
        tell("addSchema equal", () -> client.addSchema(group, first));
        tell("addSchema more", () -> client.addSchema(group, AvroSchema.of(AVRO_MORE).getSchemaInfo()));
        tell("addSchema incompatible", () -> client.addSchema(group, AvroSchema.of(AVRO_OTHER).getSchemaInfo()));
        tell("addSchema Json",
                () -> client.addSchema(group, JSONSchema.of("Person", JSON, Object.class).getSchemaInfo()));
        tell("addSchema malformed", () -> client.addSchema(group, new SchemaInfo("tests.registry.Person",
                SerializationFormat.Avro, ByteBuffer.wrap("{}".getBytes()), ImmutableMap.of())));
        tell("addSchema absent", () -> client.addSchema("absent", first));
        byte[] pet = SchemaBuilder.record("Pet").namespace("tests.registry").fields().requiredString("name").endRecord()
                .toString().getBytes(StandardCharsets.UTF_8);
        SchemaInfo other = new SchemaInfo("tests.registry.Pet", SerializationFormat.Avro, ByteBuffer.wrap(pet),
                ImmutableMap.of("kind", "second type"));
        tell("addSchema Pet", () -> client.addSchema(group, other));
        tell("getSchemas", () -> client.getSchemas(group).stream().map(x -> x.getVersionInfo().toString())
                .collect(Collectors.toList()));
        tell("getLatestSchemaVersion", () -> client.getLatestSchemaVersion(group, null).getVersionInfo());
        tell("getLatestSchemaVersion Person",
                () -> client.getLatestSchemaVersion(group, "tests.registry.Person").getVersionInfo());
        tell("getSchemaVersions Person", () -> client.getSchemaVersions(group, "tests.registry.Person").size());
        tell("getSchemaVersions", () -> client.getSchemaVersions(group, null).size());
        tell("getSchemaForVersion", () -> text(client.getSchemaForVersion(group, version)));
        tell("getVersionForSchema", () -> client.getVersionForSchema(group, first));
        tell("getVersionForSchema absent",
                () -> client.getVersionForSchema(group, AvroSchema.of(AVRO_OTHER).getSchemaInfo()));
        tell("validateSchema", () -> client.validateSchema(group, AvroSchema.of(AVRO_MORE).getSchemaInfo()));
        tell("validateSchema incompatible",
                () -> client.validateSchema(group, AvroSchema.of(AVRO_OTHER).getSchemaInfo()));
        tell("canReadUsing", () -> client.canReadUsing(group, AvroSchema.of(AVRO_MORE).getSchemaInfo()));
        tell("canReadUsing incompatible", () -> client.canReadUsing(group, AvroSchema.of(AVRO_OTHER).getSchemaInfo()));
        encodings(client, group, version);
        policies(client, group, version);
        tell("getGroupHistory", () -> client.getGroupHistory(group).stream().map(x -> x.getVersionInfo().getId() + " "
                + x.getCompatibility().getType() + " " + (x.getTimestamp() > 0)).collect(Collectors.toList()));
        tell("getSchemaReferences", () -> client.getSchemaReferences(other));
        List<String> listed = new ArrayList<>();
        client.listGroups().forEachRemaining(entry -> listed.add(entry.getKey()));
        tell("listGroups", () -> listed.size() + " " + listed.contains(group));
        tell("deleteSchemaVersion", () -> {
            client.deleteSchemaVersion(group, version);
            return client.getSchemaVersions(group, null).size();
        });
        tell("deleteSchemaVersion again", () -> {
            client.deleteSchemaVersion(group, version);
            return "fine";
        });
        tell("getEncodingInfo deleted", () -> client.getEncodingInfo(group, new EncodingId(0)).getVersionInfo());
        tell("removeGroup", () -> {
            client.removeGroup(group);
            client.removeGroup(group);
            return "fine";
        });
        tell("getGroupProperties removed", () -> properties(client.getGroupProperties(group)));
    }

    private static void encodings(SchemaRegistryClient client, String group, VersionInfo version) throws Exception {
        tell("getEncodingId", () -> client.getEncodingId(group, version, "").getId());
        tell("getEncodingId codec", () -> client.getEncodingId(group, version, "application/x-gzip").getId());
        tell("getCodecTypes none", () -> client.getCodecTypes(group));
        client.addCodecType(group, new CodecType("application/x-gzip", ImmutableMap.of("level", "9")));
        client.addCodecType(group, new CodecType("application/x-gzip", ImmutableMap.of("level", "9")));
        tell("getCodecTypes", () -> client.getCodecTypes(group));
        tell("getEncodingId gzip", () -> client.getEncodingId(group, version, "application/x-gzip").getId());
        tell("getEncodingId again", () -> client.getEncodingId(group, version, "").getId());
        tell("getEncodingInfo", () -> {
            EncodingInfo found = client.getEncodingInfo(group, new EncodingId(1));
            return found.getVersionInfo() + " " + found.getCodecType() + " " + text(found.getSchemaInfo());
        });
        tell("getEncodingInfo absent", () -> client.getEncodingInfo(group, new EncodingId(99)));
    }

    private static void policies(SchemaRegistryClient client, String group, VersionInfo version) throws Exception {
        Compatibility[] all = {
            Compatibility.allowAny(), Compatibility.backwardTransitive(), Compatibility.forward(),
            Compatibility.forwardTransitive(), Compatibility.full(), Compatibility.fullTransitive(),
            Compatibility.backwardTill(version), Compatibility.backwardOneAndForwardTill(version),
            Compatibility.backwardTillAndForwardTill(version, version), Compatibility.denyAll(),
            Compatibility.backward(),
        };
        for (Compatibility each : all) {
            tell("updateCompatibility " + each.getType(), () -> client.updateCompatibility(group, each, null));
            Compatibility found = client.getGroupProperties(group).getCompatibility();
            tell("same " + each.getType(), () -> found.equals(each) ? "yes" : each + " became " + found);
        }
        tell("updateCompatibility wrong",
                () -> client.updateCompatibility(group, Compatibility.full(), Compatibility.forward()));
        tell("updateCompatibility right",
                () -> client.updateCompatibility(group, Compatibility.full(), Compatibility.backward()));
        tell("updateCompatibility absent", () -> client.updateCompatibility("absent", Compatibility.full(), null));
    }

    private static String properties(GroupProperties found) {
        return found.getSerializationFormat() + " " + found.getCompatibility().getType() + " "
                + found.isAllowMultipleTypes() + " " + found.getProperties();
    }

    private static String text(SchemaInfo schema) {
        return new String(schema.getSchemaData().array(), StandardCharsets.UTF_8);
    }

    private static void tell(String what, Callable<Object> call) {
        Object found;
        try {
            found = call.call();
        } catch (Exception failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            found = cause.getClass().getSimpleName();
        }
        say(what + ": " + found);
    }

    // -- the serializers ----------------------------------------------------------------------------

    private static void write(SchemaRegistryClientConfig registry, String namespace, String endpoint, String scope,
            int count, String[] what) throws Exception {
        SerializationFormat format = format(what[1]);
        Compatibility policy = format == SerializationFormat.Avro ? Compatibility.backward() : Compatibility.allowAny();
        SerializerConfig.SerializerConfigBuilder builder = SerializerConfig.builder().groupId(scope + "." + what[0])
                .namespace(namespace).registryConfig(registry).registerSchema(true).createGroup(format, policy, true);
        if (!what[2].equals("none")) {
            builder.registerCodec(true).encoder(
                    what[2].equals("gzip") ? Codecs.GzipCompressor.getCodec() : Codecs.SnappyCompressor.getCodec());
        }
        SerializerConfig config = builder.build();
        try (EventStreamClientFactory factory = factory(endpoint, scope)) {
            switch (what[1]) {
                case "avro":
                    writeAll(factory, what[0], SerializerFactory.avroSerializer(config, AvroSchema.ofRecord(AVRO)),
                            i -> new GenericRecordBuilder(AVRO).set("name", "java" + i).set("age", i).build(), count);
                    break;
                case "json":
                    writeAll(factory, what[0],
                            SerializerFactory.jsonSerializer(config, JSONSchema.of("Person", JSON, Person.class)),
                            RegistryPeer::person, count);
                    break;
                default:
                    FileDescriptorSet set = FileDescriptorSet.newBuilder().addFile(PROTOBUF).build();
                    Descriptor type =
                            FileDescriptor.buildFrom(PROTOBUF, new FileDescriptor[0]).findMessageTypeByName("Person");
                    ProtobufSchema<DynamicMessage> schema = ProtobufSchema.of("tests.registry.Person", set);
                    writeAll(factory, what[0], SerializerFactory.protobufSerializer(config, schema),
                            i -> DynamicMessage.newBuilder(type).setField(type.findFieldByName("name"), "java" + i)
                                    .setField(type.findFieldByName("age"), i).build(), count);
            }
        }
    }

    private static Person person(int number) {
        Person made = new Person();
        made.name = "java" + number;
        made.age = number;
        return made;
    }

    private interface Maker<T> {
        T make(int number);
    }

    private static <T> void writeAll(EventStreamClientFactory factory, String stream, Serializer<T> serializer,
            Maker<? extends T> maker, int count) throws Exception {
        try (EventStreamWriter<T> writer = factory.createEventWriter(stream, serializer,
                EventWriterConfig.builder().build())) {
            for (int i = 0; i < count; i++) {
                writer.writeEvent("key", maker.make(i)).get();
            }
        }
    }

    private static void read(SchemaRegistryClientConfig registry, String namespace, String endpoint, String scope,
            int count, String[] what) throws Exception {
        SerializerConfig config = SerializerConfig.builder().groupId(scope + "." + what[0]).namespace(namespace)
                .registryConfig(registry).build();
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, client(endpoint));
                EventStreamClientFactory factory = factory(endpoint, scope)) {
            String group = "java" + System.nanoTime();
            manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, what[0])).build());
            try (EventStreamReader<?> reader = factory.createReader("reader", group, deserializer(config, what[1]),
                    ReaderConfig.builder().build())) {
                for (int left = count; left > 0;) {
                    EventRead<?> event = reader.readNextEvent(1000);
                    if (event.getEvent() != null) {
                        say(what[0] + " " + what[1] + " " + shown(event.getEvent()));
                        left--;
                    }
                }
            }
        }
    }

    private static Serializer<?> deserializer(SerializerConfig config, String format) {
        switch (format) {
            case "avro":
                return SerializerFactory.avroGenericDeserializer(config, null);
            case "wider":
                return SerializerFactory.avroDeserializer(config, AvroSchema.ofRecord(AVRO_MORE));
            case "json":
                return SerializerFactory.jsonStringDeserializer(config);
            case "protobuf":
                return SerializerFactory.protobufGenericDeserializer(config, null);
            default:
                return SerializerFactory.deserializeAsJsonString(config);
        }
    }

    private static String shown(Object event) throws Exception {
        if (event instanceof DynamicMessage) {
            return JsonFormat.printer().omittingInsignificantWhitespace().print((DynamicMessage) event);
        }
        return event.toString();
    }

    private static SerializationFormat format(String name) {
        return name.equals("avro") ? SerializationFormat.Avro
                : name.equals("json") ? SerializationFormat.Json : SerializationFormat.Protobuf;
    }

    private static ClientConfig client(String endpoint) {
        return ClientConfig.builder().trustStore(CA)
                .controllerURI(URI.create((CA == null ? "tcp://" : "tls://") + endpoint)).build();
    }

    private static EventStreamClientFactory factory(String endpoint, String scope) {
        return EventStreamClientFactory.withScope(scope, client(endpoint));
    }

    private static void say(String line) {
        byte[] bytes = (line.replace("\n", " ") + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }
}
