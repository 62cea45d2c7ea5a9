// The two registry clients of Node.js, unmodified, against a registry: `node clients.js URL`.  Fails with the first
// difference; prints what was done.
const assert = require('node:assert')
const sr = require('@confluentinc/schemaregistry')
const kafkajs = require('@kafkajs/confluent-schema-registry')

const url = process.argv[2]
const record = { type: 'record', name: 'R', namespace: 'n', fields: [{ name: 'a', type: 'int' }] }
const wider = { ...record, fields: [...record.fields, { name: 'b', type: 'string', default: 'x' }] }
const narrow = { ...record, fields: [...record.fields, { name: 'c', type: 'string' }] }
const json = {
  title: 'T', type: 'object', properties: { a: { type: 'integer' }, b: { type: 'string' } }, required: ['a'],
}
const proto = 'syntax = "proto3"; package n; message P { int32 a = 1; string b = 2; }'

async function ofConfluent() {
  const client = new sr.SchemaRegistryClient({ baseURLs: [url] })
  const avro = (schema, references) => ({ schema: JSON.stringify(schema), schemaType: 'AVRO', references })
  const id = await client.register('js', avro(record))
  assert.strictEqual(await client.register('js-2', avro(record)), id)
  const second = await client.registerFullResponse('js', avro(wider))
  assert.strictEqual(second.version ?? 2, 2)
  assert.deepStrictEqual(await client.getAllVersions('js'), [1, 2])
  assert.strictEqual((await client.getLatestSchemaMetadata('js')).id, second.id)
  assert.ok((await client.getBySubjectAndId('js', id)).schema.includes('R'))
  const guid = (await client.getSchemaMetadata('js', 1)).guid
  assert.ok((await client.getByGuid(guid)).schema.includes('R'))
  assert.strictEqual(await client.getVersion('js', avro(wider), false), 2)
  assert.ok((await client.getAllSubjects()).includes('js'))
  assert.strictEqual(await client.testCompatibility('js', 1, avro(narrow)), false)
  assert.strictEqual(await client.testSubjectCompatibility('js', avro(wider)), true)
  await assert.rejects(client.register('js', avro(narrow)), (error) => error.status === 409 && error.errorCode === 409)
  await assert.rejects(client.getBySubjectAndId('js', 1000000), (error) => error.errorCode === 40403)
  await client.updateCompatibility('js', 'NONE')
  assert.strictEqual(await client.getCompatibility('js'), 'NONE')
  assert.strictEqual(await client.getDefaultCompatibility(), 'BACKWARD')
  await client.register('js-u', avro({ type: 'record', name: 'U', namespace: 'n', fields: [{ name: 'r', type: 'n.R' }] },
    [{ name: 'n.R', subject: 'js', version: 1 }]))
  assert.deepStrictEqual(await client.deleteSubject('js-2'), [1])
  assert.deepStrictEqual(await client.deleteSubject('js-2', true), [1])

  const config = { autoRegisterSchemas: false, useLatestVersion: true }
  const write = new sr.AvroSerializer(client, sr.SerdeType.VALUE, config)
  await client.register('js-topic-value', avro(wider))
  const data = await write.serialize('js-topic', { a: 1, b: 'ü' })
  assert.strictEqual(data[0], 0)
  const read = await new sr.AvroDeserializer(client, sr.SerdeType.VALUE, {}).deserialize('js-topic', data)
  assert.deepStrictEqual({ ...read }, { a: 1, b: 'ü' })

  await client.register('js-json-value', { schema: JSON.stringify(json), schemaType: 'JSON' })
  const writeJson = new sr.JsonSerializer(client, sr.SerdeType.VALUE, config)
  const document = await writeJson.serialize('js-json', { a: 1, b: 'ü' })
  const found = await new sr.JsonDeserializer(client, sr.SerdeType.VALUE, {}).deserialize('js-json', document)
  assert.deepStrictEqual(found, { a: 1, b: 'ü' })
  console.log('@confluentinc/schemaregistry: calls, Avro and JSON serializers')
}

async function ofKafkaJs() {
  const registry = new kafkajs.SchemaRegistry({ host: url })
  for (const [type, schema] of [
    [kafkajs.SchemaType.AVRO, JSON.stringify(wider)],
    [kafkajs.SchemaType.JSON, JSON.stringify(json)],
    [kafkajs.SchemaType.PROTOBUF, proto],
  ]) {
    const subject = `kafkajs-${type}`
    const { id } = await registry.register({ type, schema }, { subject })
    assert.strictEqual(await registry.getLatestSchemaId(subject), id)
    assert.strictEqual(await registry.getRegistryId(subject, 1), id)
    assert.strictEqual(await registry.getRegistryIdBySchema(subject, { type, schema }), id)
    const data = await registry.encode(id, { a: 1, b: 'ü' })
    const fresh = new kafkajs.SchemaRegistry({ host: url })
    assert.deepStrictEqual(JSON.parse(JSON.stringify(await fresh.decode(data))), { a: 1, b: 'ü' })
    console.log(`@kafkajs/confluent-schema-registry: ${type}`)
  }
  await assert.rejects(registry.register({ type: kafkajs.SchemaType.AVRO, schema: JSON.stringify(narrow) },
    { subject: 'kafkajs-AVRO' }))
}

ofConfluent().then(ofKafkaJs).catch((error) => {
  console.error(error)
  process.exit(1)
})
