"""Requests of administrators for figures and settings of a broker, with typed answers.

runtime_info           GET_BROKER_RUNTIME_INFO (28)
stats_data             VIEW_BROKER_STATS_DATA (315)
ha_status              GET_BROKER_HA_STATUS (907)
broker_config          GET_BROKER_CONFIG (26), UPDATE_BROKER_CONFIG (25)
cleaning               CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG (329)
topic_stats            GET_TOPIC_STATS_INFO (202), QUERY_TOPIC_CONSUME_BY_WHO (300)
lite_topics            GET_BROKER_LITE_INFO (200074) to TRIGGER_LITE_DISPATCH (200079)
"""
