package main

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type check func(topic, group string) error

var all = consumer.MessageSelector{}

func judge(word string, names []string) {
	checks := map[string]check{
		"tags": tags, "sql": sql, "broadcast": broadcast, "orderly": orderly, "retry": retry, "dead-letter": deadLetter,
		"delay": delay, "transaction": transaction, "request": request, "namespace": namespace, "trace": trace, "pull": pull,
	}
	var running sync.WaitGroup
	for _, name := range names {
		running.Add(1)
		go func(name string) {
			defer running.Done()
			place := "go_" + strings.ReplaceAll(name, "-", "_") + "_" + word
			if err := checks[name](place, place); err != nil {
				fmt.Printf("%s failed: %s\n", name, err)
			} else {
				fmt.Println(name, "passed")
			}
		}(name)
	}
	running.Wait()
}

// Filled sends messages with these bodies, tags and numbers, one after another.
func filled(topic string, prepare func(number int, message *primitive.Message), count int, options ...producer.Option) error {
	sender, err := newProducer("senders-"+topic, options...)
	if err != nil {
		return err
	}
	defer sender.Shutdown()
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte(strconv.Itoa(number)))
		prepare(number, message)
		if _, err := sender.SendSync(context.Background(), message); err != nil {
			return err
		}
	}
	return nil
}

func plain(int, *primitive.Message) {}

// Same waits for as many messages as are expected and a while longer for more, and compares them without their order.
func same(seen *handled, expected ...string) error {
	if err := seen.wait(len(expected)); err != nil {
		return err
	}
	got := seen.bodies()
	sort.Strings(got)
	sort.Strings(expected)
	if !reflect.DeepEqual(got, expected) {
		return fmt.Errorf("got %v and not %v", got, expected)
	}
	return nil
}

func tags(topic, group string) error {
	err := filled(topic, func(number int, message *primitive.Message) { message.WithTag("abc"[number%3 : number%3+1]) }, 6)
	if err != nil {
		return err
	}
	seen, stop, err := consuming(group, group, topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "a || c"})
	if err != nil {
		return err
	}
	defer stop()
	return same(seen, "0", "2", "3", "5")
}

func sql(topic, group string) error {
	err := filled(topic, func(number int, message *primitive.Message) { message.WithProperty("n", strconv.Itoa(number)) }, 6)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: "n > 1 AND n BETWEEN 0 AND 4"}
	seen, stop, err := consuming(group, group, topic, selector)
	if err != nil {
		return err
	}
	defer stop()
	return same(seen, "2", "3", "4")
}

func broadcast(topic, group string) error {
	if err := filled(topic, plain, 3); err != nil {
		return err
	}
	for _, instance := range []string{"first", "second"} {
		model := consumer.WithConsumerModel(consumer.BroadCasting)
		seen, stop, err := consuming(group, group+instance, topic, all, model)
		if err != nil {
			return err
		}
		defer stop()
		if err := same(seen, "0", "1", "2"); err != nil {
			return fmt.Errorf("%s member: %w", instance, err)
		}
	}
	return nil
}

func orderly(topic, group string) error {
	prepare := func(number int, message *primitive.Message) {
		message.WithShardingKey("order-" + strconv.Itoa(number%3))
	}
	if err := filled(topic, prepare, 30, producer.WithQueueSelector(producer.NewHashQueueSelector())); err != nil {
		return err
	}
	seen, stop, err := consuming(group, group, topic, all, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	defer stop()
	if err := seen.wait(30); err != nil {
		return err
	}
	last := map[string]int{}
	for _, message := range seen.messages {
		number, _ := strconv.Atoi(string(message.Body))
		if before, found := last[message.GetShardingKey()]; found && before > number {
			return fmt.Errorf("%d behind %d of %s", number, before, message.GetShardingKey())
		}
		last[message.GetShardingKey()] = number
	}
	return nil
}

// Failing starts a consumer that fails each message this often, and returns its calls and the messages that it took.
func failing(topic, group string, fails int32, options ...consumer.Option) (*handled, *handled, func(), error) {
	calls, seen := &handled{}, &handled{}
	options = append([]consumer.Option{consumer.WithMaxReconsumeTimes(1)}, options...)
	started, err := rocketmq.NewPushConsumer(consumerOptions(group, group, options...)...)
	if err != nil {
		return nil, nil, nil, err
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		calls.add(messages...)
		if messages[0].ReconsumeTimes < fails {
			return consumer.ConsumeRetryLater, nil
		}
		seen.add(messages...)
		return consumer.ConsumeSuccess, nil
	}
	if err := started.Subscribe(topic, all, take); err != nil {
		return nil, nil, nil, err
	}
	return calls, seen, func() { _ = started.Shutdown() }, started.Start()
}

func retry(topic, group string) error {
	if err := filled(topic, plain, 1); err != nil {
		return err
	}
	calls, seen, stop, err := failing(topic, group, 1)
	if err != nil {
		return err
	}
	defer stop()
	if err := seen.wait(1); err != nil {
		return err
	}
	first, again := calls.messages[0], seen.messages[0]
	if again.ReconsumeTimes != 1 || again.Topic != topic || string(again.Body) != "0" {
		return fmt.Errorf("the second time %d of %s: %s", again.ReconsumeTimes, again.Topic, again.Body)
	}
	if first.MsgId != again.MsgId && again.GetProperty(primitive.PropertyOriginMessageId) == "" {
		return fmt.Errorf("the second time %s for %s, without its origin", again.MsgId, first.MsgId)
	}
	return nil
}

func deadLetter(topic, group string) error {
	if err := filled(topic, plain, 1); err != nil {
		return err
	}
	calls, _, stop, err := failing(topic, group, 9)
	if err != nil {
		return err
	}
	defer stop()
	if err := calls.wait(2); err != nil {
		return err
	}
	stopReading := func() {}
	defer func() { stopReading() }()
	// The topic of dead letters comes with the first of them.
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		seen, stop, err := consuming("dead-"+group, "dead-"+group, "%DLQ%"+group, all)
		if err != nil {
			continue
		}
		stopReading = stop
		return same(seen, "0")
	}
	return fmt.Errorf("no topic of dead letters")
}

func delay(topic, group string) error {
	if err := filled(topic, plain, 1); err != nil {
		return err
	}
	seen, stop, err := consuming(group, group, topic, all)
	if err != nil {
		return err
	}
	defer stop()
	if err := seen.wait(1); err != nil {
		return err
	}
	began := time.Now()
	if err := filled(topic, func(_ int, message *primitive.Message) { message.WithDelayTimeLevel(2) }, 1); err != nil {
		return err
	}
	if err := seen.wait(2); err != nil {
		return err
	}
	if waited := time.Since(began); waited < 4*time.Second {
		return fmt.Errorf("level 2 came after %s", waited)
	}
	return nil
}

type listener struct{ checked handled }

func (judged *listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

func (judged *listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	judged.checked.add(message)
	return primitive.CommitMessageState
}

func transaction(topic, group string) error {
	if err := filled(topic, plain, 1); err != nil {
		return err
	}
	judged := &listener{}
	sender, err := rocketmq.NewTransactionProducer(judged, producer.WithNameServer([]string{nameserver}),
		producer.WithGroupName(group), producer.WithInstanceName(group), producer.WithSendMsgTimeout(20*time.Second))
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	defer sender.Shutdown()
	seen, stop, err := consuming("of-"+group, "of-"+group, topic, all)
	if err != nil {
		return err
	}
	defer stop()
	for _, body := range []string{"rollback", "commit", "unknown"} {
		if _, err := sender.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body))); err != nil {
			return err
		}
	}
	if err := same(seen, "0", "commit", "unknown"); err != nil {
		return err
	}
	return same(&judged.checked, "unknown")
}

func request(topic, group string) error {
	if err := filled(topic, plain, 1); err != nil {
		return err
	}
	answering, err := newProducer("answering-" + group)
	if err != nil {
		return err
	}
	defer answering.Shutdown()
	ready := make(chan bool, 9)
	refused := &handled{}
	replier, err := rocketmq.NewPushConsumer(consumerOptions(group, group)...)
	if err != nil {
		return err
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			if string(message.Body) == "0" {
				ready <- true
				continue
			}
			// It takes the text that it is given for properties, and makes a reply without a body.
			answer, err := consumer.CreateReplyMessage(message, nil)
			if err == nil {
				answer.Body = append([]byte("answer to "), message.Body...)
				_, err = answering.SendSync(context.Background(), answer)
			}
			if err != nil {
				refused.add(&primitive.MessageExt{Message: primitive.Message{Body: []byte(err.Error())}})
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := replier.Subscribe(topic, all, take); err != nil {
		return err
	}
	if err := replier.Start(); err != nil {
		return err
	}
	defer replier.Shutdown()
	select {
	case <-ready:
	case <-time.After(patience):
		return fmt.Errorf("the replier got nothing")
	}
	asking, err := newProducer("asking-" + group)
	if err != nil {
		return err
	}
	defer asking.Shutdown()
	// A broker knows to whom a reply goes by the client's heartbeat, and the first one comes some time after the start.
	for end := time.Now().Add(patience); ; {
		answer, err := asking.Request(context.Background(), 5*time.Second, primitive.NewMessage(topic, []byte("question")))
		if err == nil && string(answer.Body) == "answer to question" {
			return nil
		}
		if err == nil {
			return fmt.Errorf("got %q", answer.Body)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w; replies refused: %v", err, refused.bodies())
		}
	}
}

func namespace(topic, group string) error {
	if err := filled(topic, plain, 2, producer.WithNamespace("go-space")); err != nil {
		return err
	}
	seen, stop, err := consuming(group, group, topic, all, consumer.WithNamespace("go-space"))
	if err != nil {
		return err
	}
	defer stop()
	if err := same(seen, "0", "1"); err != nil {
		return err
	}
	whole, stopWhole, err := consuming("whole-"+group, "whole-"+group, "go-space%"+topic, all)
	if err != nil {
		return err
	}
	defer stopWhole()
	return same(whole, "0", "1")
}

func trace(topic, group string) error {
	config := &primitive.TraceConfig{
		GroupName: "traces-" + group, Access: primitive.Local, NamesrvAddrs: []string{nameserver},
		Resolver: primitive.NewPassthroughResolver([]string{nameserver}), TraceTopic: "of_" + topic,
	}
	if err := filled(topic, plain, 1, producer.WithTrace(config)); err != nil {
		return err
	}
	seen, stop, err := consuming("read-"+group, "read-"+group, "of_"+topic, all)
	if err != nil {
		return err
	}
	defer stop()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if text := strings.Join(seen.bodies(), "\n"); strings.Contains(text, topic) && strings.Contains(text, "Pub") {
			return nil
		}
	}
	return fmt.Errorf("no trace of %s in %d messages", topic, len(seen.bodies()))
}

func pull(topic, group string) error {
	prepare := func(number int, message *primitive.Message) { message.WithTag("ab"[number%2 : number%2+1]) }
	if err := filled(topic, prepare, 8); err != nil {
		return err
	}
	puller, err := rocketmq.NewPullConsumer(consumerOptions(group, group)...)
	if err != nil {
		return err
	}
	if err := puller.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "a"}); err != nil {
		return err
	}
	if err := puller.Start(); err != nil {
		return err
	}
	defer puller.Shutdown()
	queues, err := puller.GetTopicRouteInfo(topic)
	if err != nil {
		return err
	}
	bodies := []string{}
	for _, queue := range queues {
		result, err := puller.PullFrom(context.Background(), queue, 0, 32)
		if err != nil {
			return err
		}
		for _, message := range result.GetMessageExts() {
			bodies = append(bodies, string(message.Body))
		}
		if err := puller.UpdateOffset(queue, result.NextBeginOffset); err != nil {
			return err
		}
	}
	sort.Strings(bodies)
	if expected := []string{"0", "2", "4", "6"}; !reflect.DeepEqual(bodies, expected) {
		return fmt.Errorf("got %v and not %v", bodies, expected)
	}
	return puller.PersistOffset(context.Background(), topic)
}
