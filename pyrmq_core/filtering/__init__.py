"""Filter expressions, parsed and evaluated: plain functions for client and broker.

    tags     tag expressions, `TagA || TagB`
    sql      an SQL92 expression as a client passes it to a broker
    sql92    the parser of SQL92, and its evaluation over a message's properties

Brokers evaluate filters. The client evaluates them again where a broker cannot, such as for batch topics.
"""
