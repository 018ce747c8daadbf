"""Facts and events over NATS JetStream: envelope, connection, streams, publisher, feeds; and lanes for handlers."""
