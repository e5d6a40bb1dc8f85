// Clients in Go (rocketmq-client-go/v2) that judge a cluster, send and read messages for a comparison, or join groups.
//
// judge NAMESERVER WORD CHECK...    prints "CHECK passed" or "CHECK failed: REASON"; the checks run side by side
// send NAMESERVER TOPIC             sends in every form and prints "sent FORM MSGID BROKER QUEUEID OFFSET"
// later NAMESERVER TOPIC            sends a delayed message, one in a transaction, and one that is rolled back
// read NAMESERVER TOPIC COUNT       prints a message per line, as JSON
// signed NAMESERVER TOPIC KEY SECRET   sends one message and consumes it with these credentials; prints "signed BODY"
// members NAMESERVER PORT           push consumers for the test that listens at the port (support/groups/java_members.py)
// divide - QUEUES MEMBERS           prints "STRATEGY QUEUES MEMBERS MEMBER [QUEUEID...]" for all sizes up to these
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// One answer may take a busy machine long; a check that fails takes no longer than this.
const patience = 100 * time.Second

var nameserver string

func main() {
	rlog.SetLogLevel("fatal")
	nameserver = os.Args[2]
	arguments := os.Args[3:]
	switch os.Args[1] {
	case "judge":
		judge(arguments[0], arguments[1:])
	case "send":
		must(send(arguments[0]))
	case "later":
		must(later(arguments[0]))
	case "read":
		count, err := strconv.Atoi(arguments[1])
		must(err)
		must(read(arguments[0], count))
	case "signed":
		must(signed(arguments[0], primitive.Credentials{AccessKey: arguments[1], SecretKey: arguments[2]}))
	case "members":
		must(members(arguments[0]))
	case "divide":
		queues, err := strconv.Atoi(arguments[0])
		must(err)
		members, err := strconv.Atoi(arguments[1])
		must(err)
		divided(queues, members)
	}
}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func newProducer(name string, options ...producer.Option) (rocketmq.Producer, error) {
	options = append([]producer.Option{
		producer.WithNameServer([]string{nameserver}), producer.WithGroupName(name), producer.WithInstanceName(name),
		producer.WithSendMsgTimeout(20 * time.Second),
	}, options...)
	created, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return created, created.Start()
}

func consumerOptions(group string, instance string, options ...consumer.Option) []consumer.Option {
	return append([]consumer.Option{
		consumer.WithNameServer([]string{nameserver}), consumer.WithGroupName(group), consumer.WithInstance(instance),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
}

// Handled is what a consumer got, in the order of its calls.
type handled struct {
	lock     sync.Mutex
	messages []*primitive.MessageExt
}

func (seen *handled) add(messages ...*primitive.MessageExt) int {
	seen.lock.Lock()
	defer seen.lock.Unlock()
	seen.messages = append(seen.messages, messages...)
	return len(seen.messages)
}

func (seen *handled) bodies() []string {
	seen.lock.Lock()
	defer seen.lock.Unlock()
	bodies := []string{}
	for _, message := range seen.messages {
		bodies = append(bodies, string(message.Body))
	}
	return bodies
}

func (seen *handled) wait(count int) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if len(seen.bodies()) >= count {
			return nil
		}
	}
	return fmt.Errorf("%d of %d messages: %s", len(seen.bodies()), count, strings.Join(seen.bodies(), ", "))
}

// Consuming starts a push consumer that takes all messages, and returns what it gets.
func consuming(group, instance, topic string, selector consumer.MessageSelector, options ...consumer.Option) (*handled, func(), error) {
	seen := &handled{}
	started, err := rocketmq.NewPushConsumer(consumerOptions(group, instance, options...)...)
	if err != nil {
		return nil, nil, err
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		seen.add(messages...)
		return consumer.ConsumeSuccess, nil
	}
	if err := started.Subscribe(topic, selector, take); err != nil {
		return nil, nil, err
	}
	return seen, func() { _ = started.Shutdown() }, started.Start()
}

func send(topic string) error {
	sender, err := newProducer("go-senders-" + topic)
	if err != nil {
		return err
	}
	told := func(form string, result *primitive.SendResult) {
		fmt.Println("sent", form, result.MsgID, result.MessageQueue.BrokerName, result.MessageQueue.QueueId, result.QueueOffset)
	}
	single := primitive.NewMessage(topic, []byte("single"))
	single.WithTag("paid")
	single.WithKeys([]string{"order-1", "shop-2"})
	single.WithProperty("região", "são paulo, 中")
	result, err := sender.SendSync(context.Background(), single)
	if err != nil {
		return err
	}
	told("single", result)
	large := primitive.NewMessage(topic, []byte(strings.Repeat("large ", 2000)))
	if result, err = sender.SendSync(context.Background(), large); err != nil {
		return err
	}
	told("large", result)
	batch := []*primitive.Message{}
	for number := 0; number < 3; number++ {
		member := primitive.NewMessage(topic, []byte("batch "+strconv.Itoa(number)))
		member.WithTag("batch")
		member.WithKeys([]string{"member-" + strconv.Itoa(number)})
		batch = append(batch, member)
	}
	if result, err = sender.SendSync(context.Background(), batch...); err != nil {
		return err
	}
	told("batch", result)
	answers := make(chan error, 1)
	later := func(_ context.Context, result *primitive.SendResult, err error) {
		if err == nil {
			told("async", result)
		}
		answers <- err
	}
	if err := sender.SendAsync(context.Background(), later, primitive.NewMessage(topic, []byte("async"))); err != nil {
		return err
	}
	if err := <-answers; err != nil {
		return err
	}
	if err := sender.SendOneWay(context.Background(), primitive.NewMessage(topic, []byte("one-way"))); err != nil {
		return err
	}
	ordered, err := newProducer("go-ordered-"+topic, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	for number := 0; number < 3; number++ {
		keyed := primitive.NewMessage(topic, []byte("keyed "+strconv.Itoa(number)))
		keyed.WithShardingKey("order-1")
		if result, err = ordered.SendSync(context.Background(), keyed); err != nil {
			return err
		}
		told("keyed", result)
	}
	_ = ordered.Shutdown()
	return sender.Shutdown()
}

func later(topic string) error {
	sender, err := newProducer("go-later-" + topic)
	if err != nil {
		return err
	}
	delayed := primitive.NewMessage(topic, []byte("delayed"))
	delayed.WithDelayTimeLevel(1)
	if _, err := sender.SendSync(context.Background(), delayed); err != nil {
		return err
	}
	_ = sender.Shutdown()
	judging, err := rocketmq.NewTransactionProducer(&listener{}, producer.WithNameServer([]string{nameserver}),
		producer.WithGroupName("go-judging-"+topic), producer.WithSendMsgTimeout(20*time.Second))
	if err != nil {
		return err
	}
	if err := judging.Start(); err != nil {
		return err
	}
	for _, body := range []string{"rollback", "commit"} {
		message := primitive.NewMessage(topic, []byte(body))
		if _, err := judging.SendMessageInTransaction(context.Background(), message); err != nil {
			return err
		}
	}
	return judging.Shutdown()
}

func read(topic string, count int) error {
	seen, stop, err := consuming("go-readers-"+topic, "reader-"+topic, topic, consumer.MessageSelector{})
	if err != nil {
		return err
	}
	defer stop()
	if err := seen.wait(count); err != nil {
		return err
	}
	for _, message := range seen.messages {
		line, err := json.Marshal(map[string]interface{}{
			"body": string(message.Body), "tag": message.GetTags(), "keys": message.GetKeys(), "id": message.MsgId,
			"broker": message.Queue.BrokerName, "queue": message.Queue.QueueId, "offset": message.QueueOffset,
			"properties": message.GetProperties(), "broker_id": message.OffsetMsgId, "flag": message.Flag,
			"size": message.StoreSize, "sys_flag": message.SysFlag, "born": message.BornTimestamp,
			"stored": message.StoreTimestamp, "born_host": message.BornHost, "store_host": message.StoreHost,
			"log_offset": message.CommitLogOffset, "crc": message.BodyCRC, "times": message.ReconsumeTimes,
			"prepared": message.PreparedTransactionOffset,
		})
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

func signed(topic string, credentials primitive.Credentials) error {
	sender, err := newProducer("go-signed-"+topic, producer.WithCredentials(credentials))
	if err != nil {
		return err
	}
	if _, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, []byte("signed by Go"))); err != nil {
		return err
	}
	selector := consumer.MessageSelector{}
	seen, stop, err := consuming("go-signed-"+topic, "reader-"+topic, topic, selector, consumer.WithCredentials(credentials))
	if err != nil {
		return err
	}
	defer stop()
	if err := seen.wait(1); err != nil {
		return err
	}
	fmt.Println("signed", seen.bodies()[0])
	return nil
}
