"""Bodies with types: what `format=json|avro|protobuf` makes of the bytes of a message, and back.

Owns schemas, decoding and encoding, value by value; `typed` puts them around batches of Arrow. Must
not connect, and must not know queues, nor how a read is planned.
"""
