// Prints each worker that is drained, and is the place to do something about it: go run . [NAME]
//
// NAME is the durable consumer: the server remembers how far it is.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Drained has the fields of a drain.drained event that are used here; proto/schemas has all of them.
type Drained struct {
	Worker struct {
		Cluster  string `json:"cluster"`
		Name     string `json:"name"`
		KubeNode string `json:"kube_node"`
	} `json:"worker"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	name := "printer"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if err := follow(ctx, name); err != nil {
		log.Fatal(err)
	}
}

func follow(ctx context.Context, name string) error {
	login, err := credentials()
	if err != nil {
		return err
	}
	url := os.Getenv("NATS_URL")
	if url == "" {
		url = nats.DefaultURL
	}
	client, err := nats.Connect(url, login...)
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := jetstream.New(client)
	if err != nil {
		return err
	}
	events, err := stream.CreateOrUpdateConsumer(ctx, "LOCKSTEP_EVENTS", jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: "lockstep.event.drain.drained.v1.>",
	})
	if err != nil {
		return err
	}
	reading, err := events.Consume(func(message jetstream.Msg) {
		var event Drained
		if err := json.Unmarshal(message.Data(), &event); err != nil {
			log.Printf("cannot be read: %v", err)
			_ = message.Term()
			return
		}
		fmt.Printf("%s/%s on %s is drained\n", event.Worker.Cluster, event.Worker.Name, event.Worker.KubeNode)
		_ = message.Ack()
	})
	if err != nil {
		return err
	}
	defer reading.Stop()
	<-ctx.Done()
	return nil
}

func credentials() ([]nats.Option, error) {
	if file := os.Getenv("NATS_CREDS"); file != "" {
		return []nats.Option{nats.UserCredentials(file)}, nil
	}
	user := os.Getenv("NATS_USER")
	if user == "" {
		return nil, nil
	}
	password, err := os.ReadFile(os.Getenv("NATS_PASSWORD_FILE"))
	if err != nil {
		return nil, err
	}
	return []nats.Option{nats.UserInfo(user, strings.TrimSpace(string(password)))}, nil
}
