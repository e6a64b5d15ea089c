"""What travels between server and sites: questions and answers as bytes."""

from pffl.codec.envelope import PROTOCOL as PROTOCOL
from pffl.codec.envelope import Answer as Answer
from pffl.codec.envelope import Request as Request
from pffl.codec.envelope import read_answer as read_answer
from pffl.codec.envelope import read_request as read_request
from pffl.codec.envelope import refusal as refusal
from pffl.codec.envelope import write_answer as write_answer
from pffl.codec.envelope import write_request as write_request
from pffl.codec.questions import decode_question as decode_question
from pffl.codec.questions import encode_question as encode_question
from pffl.codec.totals import decode_total as decode_total
from pffl.codec.totals import encode_total as encode_total
