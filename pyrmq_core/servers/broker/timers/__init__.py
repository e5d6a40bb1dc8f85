"""Timer messages, which are delivered at any time that the sender sets.

A waiting message is stored in the topic `rmq_sys_wheel_timer`, and listed in timer files of RocketMQ's format. When it
is due, a copy is stored in its own topic.

    timer_rules        the delivery time of a send: whether it is allowed, its slot, and the exact time
    timer_log          the files timerlog/*: an entry of 52 bytes for each waiting message. Entries of a slot are linked
    timer_wheel        the file timerwheel: a slot for each second, with the offset of its last entry in the timer log
    timer_checkpoint   the file config/timercheck: where the next start continues. A slave has a copy of its master's
    topic_counts       the number of waiting messages by topic, for the page of metrics
    timer_files        timer log, wheel and checkpoint together, and their repair
    open_slot          the slot that is being delivered
    timer_copies       the copy that is delivered, and the search for copies that a killed broker had delivered
    timer_delivery     reads the messages of entries, and stores their copies
    timer_store        decides where each message waits and when it is delivered
    service            the tasks that run all this. Only this module is async

Source: store/timer/TimerMessageStore.java and its neighbours (5.4.0). Not built: timers in RocksDB
(`timerRocksDBEnable`), `config/timermetrics`.
"""
