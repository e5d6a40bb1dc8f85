"""Delivery of delayed messages (ScheduleMessageService.java)."""
