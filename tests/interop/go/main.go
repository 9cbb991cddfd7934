// The Go client against our servers.
//
//	peer send NAMESRV TOPIC GROUP     sends in every way that the client has, prints what was acknowledged
//	peer consume NAMESRV TOPIC GROUP  prints every message until its input ends
//
// Output is one JSON object a line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var output sync.Mutex

func say(line map[string]any) {
	text, _ := json.Marshal(line)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		say(map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	mode, servers, topic, group := os.Args[1], strings.Split(os.Args[2], ";"), os.Args[3], os.Args[4]
	if mode == "send" {
		send(servers, topic, group)
		sendInTransactions(servers, topic, group)
	} else {
		consume(servers, topic, group)
	}
}

func acknowledge(kind string, result *primitive.SendResult) {
	say(map[string]any{"sent": kind, "status": int(result.Status), "msgId": result.MsgID, "queue": result.MessageQueue.QueueId})
}

func message(topic, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body)).WithTag("A").WithKeys([]string{"go-" + body})
}

func send(servers []string, topic, group string) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer(servers), producer.WithGroupName(group), producer.WithInstanceName(group),
		producer.WithQueueSelector(producer.NewHashQueueSelector()))
	must(err)
	must(p.Start())
	ctx := context.Background()
	for i := 0; i < 5; i++ {
		result, err := p.SendSync(ctx, message(topic, fmt.Sprintf("sync%d", i)))
		must(err)
		acknowledge("sync", result)
	}
	var pending sync.WaitGroup
	for i := 0; i < 5; i++ {
		pending.Add(1)
		must(p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			must(err)
			acknowledge("async", result)
			pending.Done()
		}, message(topic, fmt.Sprintf("async%d", i))))
	}
	pending.Wait()
	for i := 0; i < 5; i++ {
		must(p.SendOneWay(ctx, message(topic, fmt.Sprintf("oneway%d", i))))
	}
	batch := []*primitive.Message{}
	for i := 0; i < 5; i++ {
		batch = append(batch, message(topic, fmt.Sprintf("batch%d", i)))
	}
	result, err := p.SendSync(ctx, batch...)
	must(err)
	acknowledge("batch", result)
	for i := 0; i < 5; i++ {
		result, err := p.SendSync(ctx, message(topic, fmt.Sprintf("ordered%d", i)).WithShardingKey("one key"))
		must(err)
		acknowledge("ordered", result)
	}
	result, err = p.SendSync(ctx, message(topic, "delayed").WithDelayTimeLevel(1))
	must(err)
	acknowledge("delayed", result)
	result, err = p.SendSync(ctx, message(topic, "large "+strings.Repeat("compressible ", 2000)))
	must(err)
	acknowledge("large", result)
	must(p.Shutdown())
}

// transactions commits the bodies that say so, and decides "later" only when the broker asks.
type transactions struct{}

func (transactions) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch string(m.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (transactions) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	say(map[string]any{"checked": string(m.Body)})
	return primitive.CommitMessageState
}

func sendInTransactions(servers []string, topic, group string) {
	p, err := rocketmq.NewTransactionProducer(transactions{},
		producer.WithNameServer(servers), producer.WithGroupName(group+"_tx"), producer.WithInstanceName(group+"_tx"))
	must(err)
	must(p.Start())
	for _, body := range []string{"commit", "rollback", "later"} {
		result, err := p.SendMessageInTransaction(context.Background(), message(topic, body))
		must(err)
		acknowledge(body, result.SendResult)
	}
	say(map[string]any{"done": true})
	_, _ = io.Copy(io.Discard, os.Stdin) // stays for check-backs
	must(p.Shutdown())
}

func consume(servers []string, topic, group string) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName(group),
		consumer.WithInstance(fmt.Sprintf("%s-%d", group, os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	must(c.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			say(map[string]any{
				"body": string(m.Body), "tags": m.GetTags(), "keys": m.GetKeys(), "queue": m.Queue.QueueId,
				"offset": m.QueueOffset, "reconsumeTimes": m.ReconsumeTimes, "msgId": m.MsgId,
			})
			if string(m.Body) == "retry me" && m.ReconsumeTimes == 0 {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(c.Start())
	say(map[string]any{"started": true})
	_, _ = io.Copy(io.Discard, os.Stdin)
	must(c.Shutdown())
	time.Sleep(100 * time.Millisecond) // its goroutines unregister on their own
}
