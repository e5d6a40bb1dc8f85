"""Timer messages, delivered at any set time: kept in `rmq_sys_wheel_timer` and RocketMQ's own timer files.

    timer_rules        a send's delivery time: allowed, rounded, exact
    timer_log          timerlog/*: one entry of 52 bytes for each message that waits, linked to the one before
    timer_wheel        timerwheel: one slot for each second, which names its last entry of the log
    timer_checkpoint   config/timercheck: where the next start continues, and a slave's copy of its master's
    topic_counts       the waiting messages by topic, for the page of metrics
    timer_files        timer log, wheel and checkpoint together, and their repair
    open_slot          the second that is being delivered
    timer_copies       the message that is delivered, and the copies that a killed broker had delivered
    timer_delivery     messages read for their entries, and their copies stored
    timer_store        which message goes where, and when, pure like all above
    service            the tasks that call it

Source: store/timer/TimerMessageStore.java and its neighbours (5.4.0). Not built: timers in RocksDB
(`timerRocksDBEnable`), `config/timermetrics`.
"""
