"""Every code that a refusal can have, when it comes, and with which status: what ``/openapi.json`` lists.

The sentence that a caller gets is made where the error is; a test finds every code of the sources in here.
"""

from __future__ import annotations

CODES: dict[str, tuple[tuple[int, ...], str]] = {
    # what any request may be refused with
    "unknown_host": ((421,), "The Host header names no host that is served here."),
    "unknown_origin": ((403,), "A page of this origin may not call."),
    "token_needed": ((401,), "There is no bearer token, and one is needed."),
    "invalid_token": ((401,), "The bearer token is not valid."),
    "invalid_user": ((401,), "The trusted proxy's header does not name one user."),
    "keys_unavailable": ((503,), "The identity provider's keys cannot be read, so its tokens cannot be checked."),
    "token_in_address": ((400,), "The query holds a token, which would end up in logs."),
    "too_many_devices": ((429,), "Too many new devices ask to be let in (pairing)."),
    "scope_missing": ((403,), "The token is valid but not good for this."),
    "not_found": ((404,), "There is nothing at this address."),
    "method_not_allowed": ((405,), "The address takes other methods."),
    "bad_request": ((400,), "The request cannot be understood."),
    "invalid_json": ((400,), "The body is not JSON."),
    "invalid_input": ((400, 422), "A member of the body or the query is not what it must be; `param` names it."),
    "not_json": ((415,), "The body is not sent as application/json."),
    "body_too_large": ((413,), "The body is larger than the operator allows."),
    "internal": ((500,), "Something failed in the server; its log says what."),
    "starting": ((503,), "The gateway is still starting; `Retry-After` says when to try again."),
    "stopping": ((503,), "The gateway is shutting down."),
    "body_too_slow": ((408,), "The body did not arrive in the time that the operator allows."),
    "too_deep": ((400,), "The body is nested more deeply than the operator allows."),
    "too_many_failures": ((429,), "Too many wrong tokens came from this address."),
    "owner_only": ((403,), "This is for the holder of the operator's key."),
    "not_installed": ((501,), "A library that this needs is not installed."),
    "too_many_requests": ((429,), "Too many requests of this caller; `Retry-After` says when to go on."),
    "too_many_streams": ((429,), "Too many streams are open."),
    # threads, sessions
    "no_such_thread": ((404,), "The caller has no such thread."),
    "session_not_found": ((404,), "The caller has no such session."),
    "no_such_session": ((404,), "The gateway has no such session (observing)."),
    "thread_exists": ((409,), "The caller has a thread of this id."),
    "session_exists": ((409,), "The caller has a session of this id."),
    "thread_busy": ((409,), "A turn of this thread is running, and the operator's rule is not to queue."),
    "thread_waiting": ((409,), "A turn of this thread waits for answers, which come first."),
    "thread_deleted": ((409,), "The thread was deleted meanwhile."),
    "not_allowed": ((403,), "The operator does not let this caller use the command that does this."),
    "command_not_allowed": ((403,), "The caller's token is not good for this command."),
    "gateway_asks": ((409,), "Hermes's /update waits for an answer of its administrator here."),
    "nothing_to_branch": ((409,), "There is no conversation to copy yet."),
    "nothing_to_compress": ((409,), "There is no conversation to sum up yet."),
    "cannot_rewind": ((409,), "The message to go back to is no longer in the agent's memory."),
    "history_behind": ((409,), "The thread went on behind what the request knows."),
    "cannot_resume": ((409,), "Hermes did not take the session over."),
    "same_session": ((409,), "The thread is that session already."),
    "truncate_target_missing": ((422,), "A rewind is confirmed, but nothing says to where (Hermes's 4004)."),
    "truncate_unconfirmed": ((422,), "A rewind is asked for and not confirmed (Hermes's 4029)."),
    "truncate_empty_unconfirmed": ((422,), "Nothing would be left, and that is not confirmed (Hermes's 4029)."),
    "truncate_target_unknown": ((409,), "The user's message to go back to is not there (Hermes's 4018)."),
    "truncate_mismatch": ((409,), "The row and the ordinal name different turns (Hermes's 4030)."),
    # runs
    "no_input": ((400,), "There is no user message to answer."),
    "no_open_call": ((409,), "A tool message answers a call that nobody waits for."),
    "too_many_messages": ((413,), "More messages than the operator allows."),
    "too_many_items": ((413,), "A list of the body is too long."),
    "invalid_tool": ((422,), "A tool of the client's is not well described."),
    "invalid_state": ((413, 422), "The client's state is too large, or cannot be kept."),
    "too_many_tools": ((413, 422), "More tools than are taken."),
    "tools_too_large": ((413,), "The tools' descriptions are too large."),
    "too_many_queued": ((429,), "Too many messages wait for busy threads; `Retry-After` says when to try again."),
    "too_many_turns": ((429,), "Too many turns are running; `Retry-After` says when to try again."),
    "logs_full": ((429,), "Turns that are running take all the memory there is for them."),
    "tool_name_taken": ((422,), "A tool of the client's has the name of one of the agent's."),
    "idempotency_conflict": ((409,), "The Idempotency-Key was used for another request."),
    "run_not_found": ((404,), "The caller has no such run."),
    "run_over": ((409,), "The run is over, and its log is gone."),
    "run_not_accepting_steer": ((409,), "No turn is running that could take a text."),
    "command_not_steerable": ((422,), "A slash command is no text to steer with."),
    # OpenAI's API
    "model_not_found": ((404,), "No such model is listed; any name may be asked for all the same."),
    "missing_tool_result": ((400,), "Of calls that wait together, one has no tool message."),
    "turn_waits": ((409,), "A message came with tool results and cannot be taken together with them."),
    "format_too_large": ((413,), "The schema of the response's format is too large."),
    "invalid_session_id": ((422,), "The header that names a session is too long or not printable."),
    "invalid_session_key": ((422,), "The header that scopes memory is too long or not printable."),
    "response_not_found": ((404,), "The caller has no such response, or it has expired."),
    "previous_response_not_found": ((404,), "There is no response to go on from."),
    "stream_gone": ((409,), "The events of this response are no longer known; the response is."),
    "stream_over": ((504,), "The stream has lasted as long as the operator lets one."),
    "gateway_stopped": ((503,), "The gateway stopped in the middle of the turn."),
    "options_timeout": ((504,), "The providers did not tell their models in time."),
    "turn_failed": ((400, 403, 429, 502, 503), "The turn failed; the code is the failure's own (`provider_…`)."),
    # requests
    "no_such_request": ((404,), "There is no such request of the caller's."),
    "invalid_answer": ((422,), "This is no answer to that request, which stays open."),
    "request_answered": ((409,), "Another answer was given before."),
    "request_expired": ((409,), "The request's time is over."),
    "request_cancelled": ((409,), "The request was cancelled."),
    "request_unknown": ((409,), "No request of that id waits here."),
    "approval_not_pending": ((409,), "The run waits for no approval."),
    "nothing_to_answer": ((409,), "The run waits for no answer."),
    "several_open": ((409,), "Several requests are open: name the one that is meant."),
    # beside the conversation
    "no_such_subagent": ((404,), "No such subagent of the thread is running."),
    "no_such_process": ((404,), "The thread has no such background process."),
    "not_stopped": ((409,), "Hermes could not end the process."),
    "no_such_file": ((404,), "There is no such file of the caller's."),
    "file_expired": ((410,), "The file is no longer kept."),
    # a turn that failed, where its answer is the response
    "provider_auth": ((502,), "The model's provider refused the operator's key."),
    "provider_billing": ((502,), "The model's provider wants to be paid."),
    "provider_rate_limit": ((429,), "The model's provider allows no more requests now."),
    "provider_timeout": ((502,), "The model's provider did not answer in time."),
    "provider_context": ((400,), "The conversation is too long for the model."),
    "provider_error": ((502,), "The model's provider failed."),
    "provider_refused": ((502,), "The model's provider refused the request."),
    "incomplete": ((502,), "The agent ended without an answer."),
    "refused": ((502,), "The gateway did not take the message."),
    "not_accepted": (
        (429,),
        "The gateway threw the message away before a turn began: nothing was done. Send it again.",
    ),
    "not_authorized": (
        (403,),
        "The gateway's rules do not let this caller use the agent (yet).",
    ),
    "failed": ((502,), "The agent could not answer."),
    # MCP: the first three as answers of /mcp, the others as results of its tools
    "mcp_off": ((404,), "The MCP door is off; the sentence says why."),
    "mcp_failed": ((500,), "The MCP door gave no answer."),
    "too_many_sessions": ((503,), "Too many MCP sessions are open."),
    "no_turn": ((404,), "No such task of the caller's is known."),
    "no_such_message": ((404,), "The thread has no such message."),
    "no_such_tool": ((404,), "There is no such tool."),
    "already_done": ((409,), "The task is over already."),
    "position_gone": ((409,), "What stood there is no longer kept."),
    "not_steered": ((409,), "No running task took the text."),
}

RUN_ERRORS = (
    *("no_input", "no_open_call", "too_many_messages", "too_many_items", "invalid_tool", "too_many_tools"),
    *("tools_too_large", "invalid_state", "command_not_allowed", "gateway_asks", "too_many_turns", "logs_full"),
    *("tool_name_taken", "idempotency_conflict", "thread_busy", "thread_waiting", "thread_deleted", "cannot_rewind"),
    *("too_many_streams", "too_many_queued"),
)
"""Those of a request that begins a turn."""

EVERY = ("unknown_host", "unknown_origin", "token_in_address", "internal", "too_many_requests")
"""Codes that any route may answer with."""
PRIVATE = ("token_needed", "invalid_token", "invalid_user", "keys_unavailable", "scope_missing", "too_many_failures")
"""Those that ask who is calling."""
READY = ("starting", "stopping")
"""Those that need the gateway."""
BODY = ("bad_request", "invalid_json", "invalid_input", "too_deep", "not_json", "body_too_large", "body_too_slow")
"""Those that read a body."""
QUERY = ("invalid_input",)
"""Those that read a query."""


def statuses(code: str, *, body: bool) -> tuple[int, ...]:
    """The statuses that a code comes with; 400 is a body's."""
    found = CODES[code][0]
    return found if body or len(found) == 1 else tuple(status for status in found if status != 400)
