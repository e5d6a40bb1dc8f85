package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const handlerTime = 5 * time.Millisecond

// Members has the lines of java/GroupMembers.java, in both directions, and a line by which it kills itself.
func members(port string) error {
	test, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	var writing, joined sync.Mutex
	say := func(line string) {
		writing.Lock()
		defer writing.Unlock()
		fmt.Fprintln(test, line)
	}
	present := map[string]rocketmq.PushConsumer{}
	obey := func(words []string) {
		if words[0] == "die" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if words[0] == "leave" {
			joined.Lock()
			leaving := present[words[1]]
			delete(present, words[1])
			joined.Unlock()
			_ = leaving.Shutdown()
			say("left " + words[1])
			return
		}
		member, err := join(words[1], words[2], words[3], words[4], say)
		if err != nil {
			say("failed " + strings.Join(words, " ") + ": " + err.Error())
			return
		}
		joined.Lock()
		present[words[1]] = member
		joined.Unlock()
	}
	var busy sync.WaitGroup
	for lines := bufio.NewScanner(test); lines.Scan(); {
		busy.Add(1)
		go func(words []string) {
			defer busy.Done()
			obey(words)
		}(strings.Split(lines.Text(), " "))
	}
	busy.Wait()
	for _, member := range present {
		_ = member.Shutdown()
	}
	return nil
}

func join(name, group, topic, kind string, say func(string)) (rocketmq.PushConsumer, error) {
	told, strategy := "", consumer.AllocateByAveragely
	if kind == "circle" {
		strategy = consumer.AllocateByAveragelyCircle
	}
	// The client does not say which queues it has; it asks this function for them.
	divide := func(group, id string, queues []*primitive.MessageQueue, ids []string) []*primitive.MessageQueue {
		own := strategy(group, id, queues, ids)
		places := []string{}
		ofTopic := len(queues) > 0 && queues[0].Topic == topic
		for _, queue := range own {
			places = append(places, fmt.Sprintf("%s:%d", queue.BrokerName, queue.QueueId))
		}
		sort.Strings(places)
		if line := fmt.Sprintf("owns %s %s %s", name, id, strings.Join(places, ",")); ofTopic && line != told {
			told = line
			say(line)
		}
		return own
	}
	member, err := rocketmq.NewPushConsumer(consumerOptions(group, name,
		consumer.WithStrategy(divide), consumer.WithConsumerOrder(kind == "orderly"), consumer.WithConsumeGoroutineNums(4))...)
	if err != nil {
		return nil, err
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			began := time.Now()
			time.Sleep(handlerTime)
			say(fmt.Sprintf("record %s %s %d %d %s %d %d", name, message.Queue.BrokerName, message.Queue.QueueId,
				message.QueueOffset, message.MsgId, began.UnixNano()/1000, time.Now().UnixNano()/1000))
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := member.Subscribe(topic, consumer.MessageSelector{}, take); err != nil {
		return nil, err
	}
	return member, member.Start()
}

// divided prints how the two strategies for every group divide the queues of a broker.
func divided(mostQueues, mostMembers int) {
	queues, ids := []*primitive.MessageQueue{}, []string{}
	for number := 0; number < mostQueues; number++ {
		queues = append(queues, &primitive.MessageQueue{Topic: "T", BrokerName: "broker-a", QueueId: number})
	}
	for member := 0; member < mostMembers; member++ {
		ids = append(ids, fmt.Sprintf("member-%02d", member))
	}
	for size := 1; size <= mostQueues; size++ {
		for count := 1; count <= mostMembers; count++ {
			for _, id := range ids[:count] {
				tellShare("AVG", size, count, id, consumer.AllocateByAveragely("g", id, queues[:size], ids[:count]))
				tellShare("AVG_BY_CIRCLE", size, count, id, consumer.AllocateByAveragelyCircle("g", id, queues[:size], ids[:count]))
			}
		}
	}
}

func tellShare(strategy string, size, count int, id string, own []*primitive.MessageQueue) {
	places := []int{}
	for _, queue := range own {
		places = append(places, queue.QueueId)
	}
	fmt.Println(strategy, size, count, id, places)
}
